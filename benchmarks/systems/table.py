"""Compute the table of `peers.py` from timed requests.

Speeds are compared request by request, on the same prompt and repeat, because both were made
within a minute of each other; the ratio reported is the median of those ratios, with a 95 %
bootstrap interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from specdec.runtime.report.measuring.intervals import bootstrap_interval

__all__ = ["Ratio", "Record", "agreement", "best", "paired_ratio", "speed"]


@dataclass(frozen=True)
class Record:
    """One timed request."""

    configuration: str
    """As `peer, setting`."""
    prompt: int
    repeat: int
    seconds: float
    """Wall time in the worker, prompt included."""
    token_ids: tuple[int, ...]

    @property
    def speed(self) -> float:
        """Tokens per second, the reading of the prompt included."""
        return len(self.token_ids) / self.seconds


@dataclass(frozen=True)
class Ratio:
    """A median of paired ratios and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def speed(records: Sequence[Record], configuration: str) -> float:
    """Median tokens per second of a configuration."""
    return median(record.speed for record in records if record.configuration == configuration)


def paired_ratio(records: Sequence[Record], one: str, other: str) -> Ratio | None:
    """Speed of `one` over that of `other`, or None when they have no request in common."""
    ours, theirs = _by_request(records, one), _by_request(records, other)
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return None
    ratios = np.array([ours[request].speed / theirs[request].speed for request in shared])
    low, high = bootstrap_interval(ratios, lambda values: float(np.median(values)))
    return Ratio(float(np.median(ratios)), low, high)


def agreement(records: Sequence[Record], one: str, reference: str) -> tuple[float, int, int]:
    """How far the texts of `one` follow those of `reference`.

    Returns:
        (share of the reference's tokens before the first difference, identical texts, texts).
    """
    ours, theirs = _by_request(records, one), _by_request(records, reference)
    shared = sorted(ours.keys() & theirs.keys())
    same = total = identical = 0
    for request in shared:
        text, wanted = ours[request].token_ids, theirs[request].token_ids
        same += _common_prefix(text, wanted)
        total += len(wanted)
        identical += text == wanted
    return (same / total if total else 0.0), identical, len(shared)


def best(records: Sequence[Record], configurations: Sequence[str]) -> str | None:
    """The configuration with the highest median speed, of those that have records."""
    measured = {record.configuration for record in records}
    known = [name for name in configurations if name in measured]
    return max(known, key=lambda name: speed(records, name), default=None)


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _by_request(records: Sequence[Record], configuration: str) -> dict[tuple[int, int], Record]:
    return {
        (record.prompt, record.repeat): record
        for record in records
        if record.configuration == configuration
    }
