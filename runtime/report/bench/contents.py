"""Records of a benchmark; times are seconds, sizes bytes, intervals 95 %."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from specdec.runtime.report.contents import Machine

__all__ = ["BenchReport", "BenchResult", "Interval", "Percentiles"]


@dataclass(frozen=True)
class Interval:
    """A median over runs and its bootstrap interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Percentiles:
    """Of many single times."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class BenchResult:
    """One way of generating, over all prompts and repeats."""

    package: str
    """Name of the directory, or of the simulated model."""
    precision: str
    """Recipes of target and draft."""
    num_threads: int | None
    context: int | None
    """Tokens the prompts were filled up to; null leaves them as they are."""
    num_draft_tokens: str
    """The number, or "auto"; "0" is plain decoding."""
    drafter: str
    simulated_acceptance: float | None
    """What the draft was forced to; null for a real draft."""
    runs: int
    tokens: int
    tokens_per_second: Interval
    """After the prompt was read."""
    rates: tuple[float, ...]
    """The same of each run: all prompts of the first repeat, then of the next."""
    speedup: Interval | None
    """Over the plain run of the same prompt and repeat; null for plain decoding."""
    time_to_first_token: Interval
    inter_token: Percentiles
    """Pauses between arrivals of text; several tokens may arrive at once."""
    acceptance_rate: float | None
    tokens_per_round: float
    host_share: float
    """Part of the decode time outside the engines."""
    bytes_per_second: float
    """Weights the target reads, over the time inside it."""
    joules_per_token: float | None
    """Of the whole machine, prompts included; null where the system exposes no counter."""


@dataclass(frozen=True)
class BenchReport:
    """Everything one `specdec-bench` measured."""

    format: Literal[1]
    created: str
    specdec_version: str
    machine: Machine
    settings: dict[str, Any]
    """Sampling, lengths, repeats, and a checksum of the prompts."""
    energy_sources: tuple[str, ...]
    """What measured energy; empty when nothing can be read."""
    peak_memory: int | None
    """Of the process, engines and benchmark together."""
    results: tuple[BenchResult, ...]
