"""Speed of synthetic pairs: one pass of each engine, and plain against speculative decoding.

The drafted tokens are forced to be right with a set probability (`ForcedDrafter`), all else is
real. Weights are random, so texts mean nothing; that they are the same with and without a draft
is noted all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from gpu.adapter import bytes_moved, free_memory, load
from gpu.arithmetic import kernels_in, of_this_gpu
from gpu.arithmetic import pass_seconds as expected_seconds
from gpu.bandwidth import bandwidth
from gpu.builder import BUILDING, await_package
from gpu.passes import pass_seconds
from gpu.runtime import GRAPHS_WORK
from gpu.sections import NotHereError, Recorder, Setup
from gpu.synthetic import package_name, sizes_of

from specdec.engines import LoadedPackage
from specdec.engines.load import read_package
from specdec.runtime import SamplingParams, SpeculativeDecoder
from specdec.runtime.report.bench.forced import ForcedDrafter
from specdec.runtime.report.measuring.memory import bytes_per_pass

__all__ = ["Line", "require_room", "speed_of"]

ACCEPTANCES = (0.6, 0.8, 0.9)
"""Forced; `--tiny` takes the middle one."""
LENGTHS: tuple[Any, ...] = (2, 4, 6, "auto")
"""K."""
_WIDTHS = (1, 2, 3, 4, 5, 7, 9)
_BESIDE = 1_000_000_000
"""Bytes of a GPU beside weights and cache: its context, workspaces, tables of embeddings."""


@dataclass(frozen=True)
class Line:
    """One draft, acceptance and K, medians over repeats."""

    draft: str
    forced_acceptance: float
    num_draft_tokens: str
    acceptance: float
    tokens_per_round: float
    drafted_per_round: float
    plain_tokens_per_second: float
    tokens_per_second: float
    speedup: float
    """Over the plain run of the same repeat."""
    host_share: float
    """Of the time after the prompt that is spent outside the engines."""
    bytes_per_round: float
    """Between host and device."""
    same_text: bool
    """As plain decoding."""


def speed_of(index: int, setup: Setup, recorder: Recorder) -> None:
    """Measure the target of one size (0: the smaller) with both drafts."""
    sizes = sizes_of(setup.tiny)
    size = sizes.targets[index]
    recorder.figure("target", f"{size}, random weights")
    recorder.figure("draft", f"{sizes.draft}, random weights")
    bandwidth(setup, recorder)
    target_path = await_package(setup, recorder, package_name(size, "fp16"))
    with _faster(target_path, setup, recorder, "target") as target:
        if (setup.work / BUILDING).exists():
            recorder.note("further packages were being built meanwhile, by this machine's CPU")
        _passes(target, recorder)
        lines: list[Line] = []
        for done, precision in enumerate(sizes.precisions):
            seconds = recorder.left / (len(sizes.precisions) - done)
            path = await_package(setup, recorder, package_name(sizes.draft, precision))
            with _faster(path, setup, recorder, f"draft {precision}") as draft:
                for line in _pair(setup, recorder, target, draft, precision, seconds):
                    lines.append(line)
                    recorder.figure("pairs", [asdict(known) for known in lines])


@contextmanager
def _faster(path: Path, setup: Setup, recorder: Recorder, name: str) -> Iterator[LoadedPackage]:
    """The package without or with CUDA graphs, whichever makes the faster step."""
    require_room(path, setup.device)
    graphs = [False]
    if setup.on_gpu and (setup.work / GRAPHS_WORK).exists():
        graphs.append(True)
    elif setup.on_gpu:
        recorder.note(f"{name}: no CUDA graphs, as their section has not shown that they work")
    seconds: dict[bool, float] = {}
    for captured in graphs:
        package = _loaded(path, setup, captured)
        recorder.alive()
        seconds[captured] = pass_seconds(package.target, (1,), recorder.left / 20)[1]
        if captured != graphs[-1]:
            package.close()
    if min(seconds, key=lambda captured: seconds[captured]) != graphs[-1]:
        package.close()
        package = _loaded(path, setup, False)
    told = {("captured" if captured else "launched"): value for captured, value in seconds.items()}
    recorder.figure(f"{name} steps", told)
    with package:
        yield package


def require_room(path: Path, device: str) -> None:
    """Check that a package fits on a GPU, before it is loaded.

    Raises:
        NotHereError: less is free than its weights and cache take.
    """
    free = free_memory(device)
    manifest = read_package(path, verify_checksums=False).manifest
    needed = bytes_per_pass(manifest, "target") + manifest.target.kv_cache_bytes + _BESIDE
    if free is not None and free < needed:
        raise NotHereError(
            f"{path.name} needs about {needed / 1e9:.1f} GB of {device}, which has "
            f"{free / 1e9:.1f} GB free"
        )


def _loaded(path: Path, setup: Setup, cuda_graphs: bool) -> LoadedPackage:
    threads = 1 if setup.tiny else None
    return load(path, setup.device, num_threads=threads, cuda_graphs=cuda_graphs)


def _passes(package: LoadedPackage, recorder: Recorder) -> None:
    """The verify curve, and how much of the memory's speed a plain step reaches."""
    found = pass_seconds(package.target, _WIDTHS, recorder.left / 5)
    curve = {str(rows): taken for rows, taken in found.items()}
    recorder.figure("verify_seconds", curve)
    whole = pass_seconds(package.target, (1,), recorder.left / 20, whole=True)[1]
    recorder.figure("whole_logits_seconds", whole)
    read = bytes_per_pass(package.manifest, "target")
    rate = read / curve["1"]
    share = rate / recorder.result.figures["copy_bytes_per_second"]
    recorder.figure("weights_read", read)
    recorder.figure("bytes_per_second", rate)
    recorder.figure("share_of_copy", share)
    gpu = of_this_gpu(recorder.result.figures["copy_bytes_per_second"])
    kernels = kernels_in(package.package.target_graph)
    expected = {
        how: expected_seconds(gpu, read, kernels, captured=how == "captured")
        for how in ("launched", "captured")
    }
    recorder.figure("kernels", kernels)
    recorder.figure("expected_seconds", expected)
    recorder.say(
        f"  plain step {curve['1'] * 1e3:.2f} ms, {rate / 1e9:.1f} GB/s, {share:.0%} of a copy; "
        f"T(5) / T(1) = {curve['5'] / curve['1']:.2f}"
    )


def _pair(
    setup: Setup,
    recorder: Recorder,
    target: LoadedPackage,
    draft: LoadedPackage,
    name: str,
    seconds: float,
) -> Iterator[Line]:
    """Every acceptance and K in turn with plain decoding, for as long as there is time."""
    began = perf_counter()
    step = recorder.result.figures["verify_seconds"]["1"]
    slow = setup.tiny or 64 * step > seconds / 50  # there are 12 lines of some 3 repeats
    tokens, repeats = (16, 1) if slow else (64, 3)
    prompt = [(index * 53) % 251 for index in range(32 if setup.tiny else 128)]
    plain = SpeculativeDecoder(target.target)
    params = SamplingParams(max_new_tokens=tokens, num_draft_tokens=0, ignore_eos=True)
    text = plain.generate(prompt, params).token_ids
    measured = False
    for acceptance in ACCEPTANCES[1:2] if setup.tiny else ACCEPTANCES:
        forced = ForcedDrafter(draft.target, acceptance, shares_cache=False)
        forced.text = [*prompt, *text]
        decoder = SpeculativeDecoder(target.target, draft.target, drafter=forced)
        for wanted in LENGTHS:
            if perf_counter() - began > seconds and measured:
                recorder.shorten(f"{name}, acceptance {acceptance}, K = {wanted}")
                continue
            drafted = SamplingParams(
                max_new_tokens=tokens, num_draft_tokens=wanted, ignore_eos=True
            )
            decoder.generate(prompt, drafted)  # allocates, and teaches "auto" the costs
            runs = []
            for _ in range(repeats):
                before = bytes_moved(target.target, draft.target)
                one = decoder.generate(prompt, drafted)
                moved = bytes_moved(target.target, draft.target) - before
                runs.append((plain.generate(prompt, params).stats, one, moved))
            line = _line(name, acceptance, str(wanted), runs, text)
            measured = True
            yield line
            recorder.say(
                f"  {name} A={acceptance} K={wanted}: {line.tokens_per_second:.0f} tokens/s, "
                f"{line.speedup:.2f}x plain, host {line.host_share:.0%}, "
                f"{line.bytes_per_round:.0f} bytes a round"
            )


def _line(
    name: str, acceptance: float, wanted: str, runs: Sequence[tuple[Any, Any, int]], text: Any
) -> Line:
    stats = [one.stats for _, one, _ in runs]
    decoding = [one.total_seconds - one.prefill_seconds for one in stats]
    return Line(
        draft=name,
        forced_acceptance=acceptance,
        num_draft_tokens=wanted,
        acceptance=median(one.acceptance_rate for one in stats),
        tokens_per_round=median(one.tokens_per_round for one in stats),
        drafted_per_round=median(one.drafted / one.rounds for one in stats),
        plain_tokens_per_second=median(plain.tokens_per_second for plain, _, _ in runs),
        tokens_per_second=median(one.tokens_per_second for one in stats),
        speedup=median(
            one.stats.tokens_per_second / plain.tokens_per_second for plain, one, _ in runs
        ),
        host_share=median(
            one.host_seconds / spent for one, spent in zip(stats, decoding, strict=True)
        ),
        bytes_per_round=median(moved / one.stats.rounds for _, one, moved in runs),
        same_text=all(one.token_ids == text for _, one, _ in runs),
    )
