"""Host milliseconds of one round: everything but the engines, at K drafted tokens.

Engines here hand out prepared rows of logits, so what remains is the NumPy work of the
runtime: processing, drawing, verification. Prints the hardware, the settings and a table.

    python benchmarks/host_time.py [--tokens 200] [--draft-tokens 4]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import EngineInfo, check_forward
from specdec.runtime import SamplingParams, SpeculativeDecoder

VOCABULARIES = (49_152, 151_936)
NUM_ROWS = 61
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "T 0.7, full": {"temperature": 0.7},
    "T 0.7, top-k 50": {"temperature": 0.7, "top_k": 50},
    "T 0.7, top-p 0.95": {"temperature": 0.7, "top_p": 0.95},
    "greedy, repetition 1.1": {"repetition_penalty": 1.1},
}


class PreparedEngine:
    """Logits by position from a fixed pool, float32, without any computation."""

    def __init__(self, name: str, rows: NDArray[np.float32], max_length: int) -> None:
        self.info = EngineInfo(
            name,
            rows.shape[1],
            rows.shape[1],
            max_length,
            1,
            1,
            1,
            1,
            "fp32",
            "fp32",
            "pool",
            "cpu",
        )
        self.length = 0
        self._rows = np.concatenate([rows, rows])[None]

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> NDArray[np.float32]:
        """Rows of the pool by absolute position."""
        self.length += check_forward(self.info, self.length, token_ids, num_logits)
        start = (self.length - num_logits) % NUM_ROWS
        return self._rows[:, start : start + num_logits]

    def truncate(self, length: int) -> None:
        """Set the length."""
        self.length = length

    def close(self) -> None:
        """Nothing to release."""


def logits_like_a_models(vocab_size: int, seed: int) -> NDArray[np.float32]:
    """Gaussian rows with a few high ids each: entropy of a few bits, as text has."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(scale=2.0, size=(NUM_ROWS, vocab_size)).astype(np.float32)
    for row in rows:
        row[rng.integers(vocab_size, size=12)] += rng.uniform(8.0, 16.0, size=12)
    return rows


def host_milliseconds(
    rows: NDArray[np.float32], draft_rows: NDArray[np.float32], params: SamplingParams
) -> tuple[float, float]:
    """(median host ms per round, tokens per round) over three generations."""
    length = params.max_new_tokens + 8
    decoder = SpeculativeDecoder(
        PreparedEngine("target", rows, length), PreparedEngine("draft", draft_rows, length)
    )
    runs = [decoder.generate([1, 2, 3], params).stats for _ in range(3)]
    times = [1e3 * run.host_seconds / run.rounds for run in runs]
    return statistics.median(times), runs[0].tokens_per_round


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--draft-tokens", type=int, default=4)
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, NumPy {np.__version__}")
    print(f"K = {options.draft_tokens}, {options.tokens} tokens; host ms per round (tokens/round)")
    verifiers: tuple[Literal["block", "token", "coupled"], ...] = ("block", "token", "coupled")
    print(f"{'vocabulary':>10}  {'setting':<24}" + "".join(f"{v:>16}" for v in verifiers))
    for vocab_size in VOCABULARIES:
        rows = logits_like_a_models(vocab_size, 1)
        noise = np.random.default_rng(2).normal(scale=0.5, size=rows.shape).astype(np.float32)
        for name, setting in SETTINGS.items():
            cells = []
            for verify in verifiers:
                params = SamplingParams(
                    max_new_tokens=options.tokens,
                    num_draft_tokens=options.draft_tokens,
                    seed=1,
                    verify=verify,
                    **setting,
                )
                milliseconds, rate = host_milliseconds(rows, rows + noise, params)
                cells.append(f"{milliseconds:>9.2f} ({rate:.1f})")
            print(f"{vocab_size:>10}  {name:<24}" + "".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
