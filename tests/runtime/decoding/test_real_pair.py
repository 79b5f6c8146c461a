"""A real pair through ONNX Runtime: equal precision, sessions, cancellation, NaN, samples.

A tiny Llama is exported with itself in FP32 as the draft, so draft and target are the same
numbers: whatever is not accepted is a fault of the caches.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from specdec.engines import Device, OrtOptions
from specdec.engines.load import load_package
from specdec.runtime import NumericalError, SamplingParams, SpeculativeDecoder
from specdec.runtime.audit import AuditPlan, audit
from tests.cli.tiny_source import write_tiny_source
from tests.support.other_memory import OtherMemory

pytestmark = pytest.mark.slow

pytest.importorskip("optimum", reason="the pair is exported here")

PROMPT = list(b"the cache")
REDUCIBLE: dict[str, dict[str, float]] = {
    "greedy": {},
    "top_k": {"temperature": 0.9, "top_k": 5},
    "top_p": {"temperature": 0.9, "top_p": 0.8},
    "min_p": {"temperature": 0.9, "min_p": 0.2},
}
LONG = SamplingParams(max_new_tokens=500, ignore_eos=True, num_draft_tokens=4)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from specdec.export import ExportOptions, export_package

    folder = tmp_path_factory.mktemp("real")
    source = write_tiny_source(folder / "source", max_length=560, spread=0.2)
    options = ExportOptions(
        str(source),
        "self",
        folder / "package",
        target_precision="fp32",
        draft_precision="fp32",
        num_threads=1,
    )
    export_package(options)
    return folder / "package"


@pytest.fixture
def decoder(package: Path) -> Iterator[SpeculativeDecoder]:
    with SpeculativeDecoder.load(package, num_threads=1, drafter="model") as loaded:
        yield loaded


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("verify", ["block", "token", "coupled"])
def test_500_tokens_at_equal_precision_accept_everything(
    decoder: SpeculativeDecoder, verify: str, temperature: float
) -> None:
    """Row 9 of docs/defects.md, on the target's own cache, which the draft shares."""
    params = SamplingParams(
        max_new_tokens=500,
        ignore_eos=True,
        num_draft_tokens=4,
        temperature=temperature,
        verify=verify,
        seed=3,
    )
    stats = decoder.generate(PROMPT, params).stats
    assert stats.acceptance_rate == 1.0
    assert (stats.new_tokens, stats.rounds, stats.accepted) == (500, 100, 400)


def test_500_tokens_on_two_caches_accept_everything(package: Path) -> None:
    """Row 9 of docs/defects.md, with a cache for each model."""
    options = {"device": "cpu", "draft_device": None, "num_threads": 1, "load_draft": False}
    with load_package(package, **options) as one, load_package(package, **options) as other:
        decoder = SpeculativeDecoder(one.target, other.target)
        stats = decoder.generate(PROMPT, LONG).stats
        assert stats.acceptance_rate == 1.0
        assert (stats.new_tokens, stats.rounds) == (500, 100)


@pytest.mark.parametrize("options", REDUCIBLE.values(), ids=REDUCIBLE)
@pytest.mark.parametrize("verify", ["block", "token", "coupled"])
def test_reduced_logits_change_no_token(
    package: Path, verify: str, options: dict[str, float]
) -> None:
    """On the CPU's memory, and on memory that is not the host's."""
    params = SamplingParams(
        max_new_tokens=40, ignore_eos=True, num_draft_tokens=3, seed=5, verify=verify, **options
    )
    beside = OtherMemory("cpu")
    texts, moved = [], {}
    for device in (Device("cpu"), beside):
        for reduce in (False, True):
            ort = OrtOptions(reduce_logits=reduce, engine="onnxruntime")
            with load_package(package, device=device, num_threads=1, ort=ort) as loaded:
                decoder = SpeculativeDecoder(
                    loaded.target,
                    loaded.draft,
                    shares_cache=loaded.draft_shares_cache,
                    drafter="model",
                )
                texts.append(decoder.generate(PROMPT, params).token_ids)
                moved[device, reduce] = loaded.target.bytes_moved  # type: ignore[attr-defined]
    assert len(set(texts)) == 1
    assert moved[Device("cpu"), False] == moved[Device("cpu"), True] == 0
    if not {"top_p", "min_p"} & options.keys():  # those look at more tokens than there are here
        assert moved[beside, True] < moved[beside, False] / 3


def test_two_devices(package: Path, decoder: SpeculativeDecoder) -> None:
    """A draft made to share the target's cache has one of its own on another device."""
    expected = decoder.generate(PROMPT, LONG).token_ids
    beside = OtherMemory("cpu")
    for device, draft_device in ((Device("cpu"), beside), (beside, Device("cpu"))):
        with load_package(
            package, device=device, draft_device=draft_device, num_threads=1
        ) as loaded:
            assert not loaded.draft_shares_cache
            pair = SpeculativeDecoder(loaded.target, loaded.draft, drafter="model")
            result = pair.generate(PROMPT, LONG)
        assert result.token_ids == expected
        assert result.stats.acceptance_rate == 1.0


def test_turns_of_a_session_equal_fresh_runs(decoder: SpeculativeDecoder) -> None:
    """Row 6 of docs/defects.md: what a turn leaves in the cache is what a fresh run puts there."""
    params = SamplingParams(max_new_tokens=30, num_draft_tokens=3)
    turns, ids = [], []
    with decoder.session() as session:
        for text in (b"one", b"two two", b"three"):
            ids = [*session.token_ids, *text]
            turns.append((list(ids), session.generate(list(text), params).token_ids))
    for prompt, tokens in turns:
        assert decoder.generate(prompt, params).token_ids == tokens


def test_a_shared_prefix_changes_no_token(decoder: SpeculativeDecoder) -> None:
    params = SamplingParams(max_new_tokens=20, num_draft_tokens=3)
    system = list(b"a long system prompt that stays the same. ")
    decoder.generate([*system, *b"first"], params)
    reused = decoder.generate([*system, *b"second"], params, reuse_prefix=True)
    assert decoder.generate([*system, *b"second"], params).token_ids == reused.token_ids


def test_cancelled_from_another_thread(decoder: SpeculativeDecoder) -> None:
    whole = decoder.generate(PROMPT, LONG).token_ids
    stream = decoder.stream(PROMPT, LONG)
    first = next(stream).token_ids
    thread = threading.Thread(target=stream.close)
    thread.start()
    rest = [token for chunk in stream for token in chunk.token_ids]
    thread.join()
    assert stream.result is not None
    assert stream.result.finish_reason == "cancelled"
    kept = stream.result.token_ids
    assert (*first, *rest) == kept[: len(first) + len(rest)]
    assert kept == whole[: len(kept)]
    assert decoder.generate(PROMPT, LONG).token_ids == whole


@pytest.mark.parametrize("engine", ["target", "draft"])
def test_weights_that_are_not_numbers(
    package: Path, decoder: SpeculativeDecoder, tmp_path: Path, engine: str
) -> None:
    """Row 22 of docs/defects.md: an error that names the engine, never token 0 for ever."""
    broken = tmp_path / "broken"
    shutil.copytree(package, broken)
    for path in (broken / engine).iterdir():
        if path.suffix != ".onnx":
            size = path.stat().st_size
            path.write_bytes(np.full(size // 4, np.nan, np.float32).tobytes().ljust(size, b"\0"))
    plain = SamplingParams(max_new_tokens=9, ignore_eos=True, num_draft_tokens=0)
    with SpeculativeDecoder.load(
        broken, verify_checksums=False, num_threads=1, drafter="model"
    ) as bad:
        place = rf"the {engine} engine gave nan .* position {len(PROMPT)};"
        with pytest.raises(NumericalError, match=place):
            bad.generate(PROMPT, plain if engine == "target" else LONG)
        if engine == "draft":  # what it wrote into the shared cache is gone
            expected = decoder.generate(PROMPT, plain).token_ids
            assert bad.generate(PROMPT, plain).token_ids == expected


def test_the_audit_passes_it(package: Path) -> None:
    params = SamplingParams(
        temperature=1.0, top_k=4, num_draft_tokens=2, draft_temperature=2.0, verify="block"
    )
    plan = AuditPlan(settings=(params,), num_prefixes=2, samples=400, greedy_tokens=60)
    with load_package(package, device="cpu", draft_device=None, num_threads=1) as loaded:
        report = audit(
            loaded.target,
            loaded.draft,
            [PROMPT, list(b"another")],
            plan,
            shares_cache=loaded.draft_shares_cache,
        )
    assert report.passed
    assert report.rollback.largest_difference == 0.0
    assert report.sampling[0].acceptance_rate < 0.95  # the hot draft was told apart
