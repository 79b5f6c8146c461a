"""Soak test: many mixed requests on one decoder, with the process's memory before and after.

Requests are greedy and sampled, with every verifier, options of every kind, streams that are
closed early, sessions, reused prefixes, and requests that are refused. Memory is read after a
warm-up and then after every tenth of the rest; the slope is that of a straight line through
those readings. Texts are drawn from a fixed set: the tokenizers library remembers up to 10,000
words it has seen, which is not what is measured here.

    python benchmarks/soak.py PACKAGE [--requests 1000] [--max-new-tokens 12]
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from specdec.runtime import PromptError, SamplingParams, Session, SpeculativeDecoder
from specdec.runtime.report.measuring.memory import resident_memory

__all__ = ["SoakResult", "soak"]

WARM_UP = 100
WORDS = ("the", "of", "and", "is", "with", "that", "this", "你好", "café", "😀", "def", "x1", "\n")
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 20, "verify": "token"},
    {"temperature": 1.2, "min_p": 0.05, "verify": "coupled"},
    {"temperature": 1.0, "repetition_penalty": 1.2, "frequency_penalty": 0.3, "logprobs": 3},
    {"no_repeat_ngram_size": 3, "min_new_tokens": 3},
    {"stop": ["e", "."], "logit_bias": {5: -np.inf}},
    {"ignore_eos": True, "skip_special_tokens": False, "num_draft_tokens": 0},
    {"temperature": 0.9, "num_draft_tokens": 6, "truncate_prompt": "left"},
)


@dataclass(frozen=True)
class SoakResult:
    """What was run and what memory did, in bytes."""

    outcomes: Counter[str]
    """How many requests ended in each way."""
    new_tokens: int
    before: int
    """Resident after the warm-up."""
    after: int
    slope: float
    """Bytes per request, of a straight line through the readings."""


def soak(
    decoder: SpeculativeDecoder, requests: int, max_new_tokens: int, seed: int = 0
) -> SoakResult:
    """Run a warm-up and `requests` requests; the same seed runs the same ones."""
    mixture = Mixture(decoder, max_new_tokens, seed)
    for _ in range(WARM_UP):
        mixture.play()
    mixture.outcomes.clear()
    mixture.new_tokens = 0
    readings = [_memory()]
    for part in range(10):
        for _ in range(requests * part // 10, requests * (part + 1) // 10):
            mixture.play()
        readings.append(_memory())
    counts = [requests * part // 10 for part in range(11)]
    slope = float(np.polyfit(counts, readings, 1)[0])
    return SoakResult(mixture.outcomes, mixture.new_tokens, readings[0], readings[-1], slope)


class Mixture:
    """Draws and plays one request after the other."""

    def __init__(self, decoder: SpeculativeDecoder, max_new_tokens: int, seed: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.new_tokens = 0
        self._decoder = decoder
        self._max_new_tokens = max_new_tokens
        self._random = random.Random(seed)
        self._session: Session = decoder.session()
        self._texts = [
            " ".join(self._random.choices(WORDS, k=self._random.randint(1, 40))) for _ in range(50)
        ]
        for text in self._texts:
            decoder.encode(text)

    def play(self) -> None:
        """One request."""
        choose = self._random
        params = SamplingParams(max_new_tokens=self._max_new_tokens, **choose.choice(OPTIONS))
        text = choose.choice(self._texts)
        kind = choose.choice(["whole", "closed", "session", "prefix", "refused"])
        if kind == "refused":
            try:
                self._decoder.generate([-1], params)
            except PromptError:
                self.outcomes["refused"] += 1
            return
        if kind == "session":
            if len(self._session.token_ids) > min(self._decoder.max_length // 3, 300):
                self._session.reset()
            stream = self._session.stream(text, params)
        else:
            stream = self._decoder.stream(text, params, reuse_prefix=kind == "prefix")
        with stream:
            for count, _ in enumerate(stream):
                if kind == "closed" and count == choose.randint(0, 3):
                    break
        assert stream.result is not None
        self.outcomes[stream.result.finish_reason] += 1
        self.new_tokens += len(stream.result.token_ids)


def _memory() -> int:
    gc.collect()
    resident = resident_memory()
    if resident is None:
        raise SystemExit("this system does not say how much memory a process has")
    return resident


def main() -> None:
    """Soak and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--max-new-tokens", type=int, default=12)
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, NumPy {np.__version__}")
    with SpeculativeDecoder.load(options.package) as decoder:
        result = soak(decoder, options.requests, options.max_new_tokens)
    print(f"{options.requests} requests after {WARM_UP} to warm up, {result.new_tokens} tokens:")
    print("  " + ", ".join(f"{name} {n}" for name, n in sorted(result.outcomes.items())))
    print(f"resident {result.before / 2**20:.1f} MiB before, {result.after / 2**20:.1f} MiB after")
    print(f"slope {result.slope / 1024:.3f} KiB per request")


if __name__ == "__main__":
    main()
