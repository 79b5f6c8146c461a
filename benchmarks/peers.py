"""specdec beside ONNX Runtime GenAI, OpenVINO GenAI, llama.cpp and transformers.

    python benchmarks/peers.py --install                 # once: environments and models
    python benchmarks/peers.py --json peers.json         # everything that is installed
    python benchmarks/peers.py --only 'specdec*' --only 'genai*' --temperature 0

One model (SmolLM2-135M-Instruct), the same FP16-valued weights for all, FP32 arithmetic, the
same prompts as token ids, the same number of threads. Every peer lives in its own process with
its models loaded, and all configurations take turns on each prompt, so a machine that drifts
slows all alike. Speed counts the whole request, prompt included. Greedy texts are compared with
those of transformers. Figures are only worth something on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path

from demo.weights import default_cache, write_weights
from systems.configurations import CONFIGURATIONS, Configuration
from systems.document import PeersRun, write_run
from systems.markdown import full_tables, origin
from systems.process import PeerError, Worker
from systems.setup import PEERS, install, prepare
from systems.table import Record

from specdec.runtime.report.measuring.machine import describe_machine, usable_cores
from specdec.runtime.report.measuring.prompt_set import load_prompts

REQUEST_TIMEOUT = 300.0
SETTINGS = ("temperature", "repeats", "tokens", "threads", "category", "gap")


def main() -> int:
    """Install, or measure and print."""
    options = _options()
    chosen = [c for c in CONFIGURATIONS if any(fnmatch(c.name, only) for only in options.only)]
    if options.install:
        return _install(sorted({c.peer for c in chosen}), options.cache, options.threads)
    ready = [c for c in chosen if PEERS[c.peer].models(options.cache).is_dir()]
    for peer in sorted({c.peer for c in chosen} - {c.peer for c in ready}):
        print(f"{peer}: not installed; run --install", file=sys.stderr)
    if not ready:
        return 1
    prompts = _prompts(options)
    workers = {peer: _worker(peer, options) for peer in dict.fromkeys(c.peer for c in ready)}
    try:
        ready = _load(ready, workers)
        records = {t: _measure(ready, workers, prompts, t, options) for t in options.temperature}
        versions = {peer: worker.versions for peer, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.close()
    settings = {name: value for name, value in vars(options).items() if name in SETTINGS}
    machine = asdict(describe_machine("cpu", num_threads=options.threads))
    run = PeersRun(machine, versions, settings, len(prompts), records)
    if options.json:
        write_run(run, options.json)
    _print(run)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--install", action="store_true", help="environments and models, once")
    parser.add_argument("--only", action="append", help="pattern of 'peer, setting'; repeatable")
    parser.add_argument("--temperature", type=float, action="append", help="0 and 0.7 by default")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=8, help="number of English prompts")
    parser.add_argument("--category", help="only prompts of this category")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--gap", type=float, default=0.2, help="seconds between two requests")
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.json and not options.json.parent.is_dir():
        parser.error(f"--json: the folder {options.json.parent} does not exist")
    options.only = options.only or ["*"]
    options.temperature = options.temperature or [0.0, 0.7]
    return options


def _install(peers: Sequence[str], cache: Path, threads: int) -> int:
    failed = 0
    print("weights", file=sys.stderr)
    write_weights(cache)
    for peer in peers:
        print(f"{peer}: environment, then models", file=sys.stderr)
        try:
            install(PEERS[peer], cache)
            prepare(PEERS[peer], cache, threads)
        except subprocess.CalledProcessError as error:
            print(f"{peer}: failed\n{error.stderr or ''}", file=sys.stderr)
            failed = 1
    return failed


def _prompts(options: argparse.Namespace) -> list[list[int]]:
    """English prompts as token ids, through the model's chat template, categories in turn."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.cache / "weights" / "hf")
    chosen = [
        prompt
        for prompt in load_prompts()
        if prompt.language == "en" and options.category in (None, prompt.category)
    ]
    seen: Counter[str] = Counter()
    ranked = []
    for order, prompt in enumerate(chosen):
        ranked.append((seen[prompt.category], order, prompt.text))
        seen[prompt.category] += 1
    messages = [[{"role": "user", "content": text}] for _, _, text in sorted(ranked)]
    return [
        tokenizer.apply_chat_template(message, add_generation_prompt=True)
        for message in messages[: options.prompts]
    ]


def _worker(peer: str, options: argparse.Namespace) -> Worker:
    return Worker(PEERS[peer], options.cache, options.threads)


def _load(ready: list[Configuration], workers: dict[str, Worker]) -> list[Configuration]:
    """Load every model once; what cannot be loaded is named and left out."""
    loaded: dict[tuple[str, str], bool] = {}
    for configuration in ready:
        key = (configuration.peer, configuration.model)
        if key not in loaded:
            print(f"load {configuration.peer} {configuration.model}", file=sys.stderr)
            try:
                workers[configuration.peer].load(configuration.model)
                loaded[key] = True
            except PeerError as error:
                print(f"left out: {error}", file=sys.stderr)
                loaded[key] = False
    return [c for c in ready if loaded[c.peer, c.model]]


def _measure(
    ready: Sequence[Configuration],
    workers: dict[str, Worker],
    prompts: Sequence[list[int]],
    temperature: float,
    options: argparse.Namespace,
) -> list[Record]:
    """Time everything in turn, after one short request each to warm up."""
    records: list[Record] = []
    failed: set[str] = set()
    for repeat in range(-1, options.repeats):
        for index, prompt in enumerate(prompts if repeat >= 0 else prompts[:1]):
            turn = (max(repeat, 0) + index) % len(ready)
            for configuration in [*ready[turn:], *ready[:turn]]:
                if configuration.name in failed:
                    continue
                time.sleep(options.gap)
                tokens = options.tokens if repeat >= 0 else min(16, options.tokens)
                request = {
                    "op": "generate",
                    "model": configuration.model,
                    "prompt": prompt,
                    "max_new_tokens": tokens,
                    "temperature": temperature,
                    "seed": 1000 * repeat + index + 1000,
                    "num_draft_tokens": configuration.num_draft_tokens,
                }
                try:
                    answer = workers[configuration.peer].ask(request, REQUEST_TIMEOUT)
                except PeerError as error:
                    print(f"left out: {error}", file=sys.stderr)
                    failed.add(configuration.name)
                    continue
                if repeat >= 0:
                    ids = tuple(answer["token_ids"])
                    records.append(
                        Record(configuration.name, index, repeat, answer["seconds"], ids)
                    )
            print(f"T = {temperature}: repeat {repeat}, prompt {index}", file=sys.stderr)
    return [record for record in records if record.configuration not in failed]


def _print(run: PeersRun) -> None:
    """The settings, then the tables as Markdown."""
    print(origin(run), end="\n\n")
    print(full_tables(run))


if __name__ == "__main__":
    sys.exit(main())
