"""Records of what an audit found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "AuditReport",
    "GreedyDifference",
    "GreedyReport",
    "RollbackReport",
    "SamplingReport",
    "TestReport",
]


@dataclass(frozen=True)
class GreedyDifference:
    """Where the pair's greedy text leaves the target's own."""

    position: int
    """Index of the first token that differs."""
    gap: float
    """Between the target's two best logits there."""
    noise: float
    """Largest change of a logit between feeding the text row by row and K + 1 rows at a time."""
    is_near_tie: bool
    """True when rounding explains it."""


@dataclass(frozen=True)
class GreedyReport:
    """Greedy texts of the pair against the target's own."""

    num_prompts: int
    num_tokens: int
    """Of the target's own texts."""
    differences: tuple[GreedyDifference, ...]
    """At most one per prompt."""

    @property
    def passed(self) -> bool:
        """True when no difference is more than rounding."""
        return all(difference.is_near_tie for difference in self.differences)


@dataclass(frozen=True)
class RollbackReport:
    """Whether truncated rows leave no trace in the target's cache."""

    largest_difference: float
    """Largest change of a logit between a pass and its repetition after a truncation."""
    allowed: float

    @property
    def passed(self) -> bool:
        """True when the pass is the same."""
        return self.largest_difference <= self.allowed


@dataclass(frozen=True)
class TestReport:
    """One statistical test."""

    __test__ = False  # not a test of pytest's

    name: str
    statistic: float
    degrees: float
    """Mean of the statistic when nothing is wrong."""
    p_value: float
    failed: bool
    """After Holm's correction over all tests of the audit."""


@dataclass(frozen=True)
class SamplingReport:
    """What was committed under one set of options, against the target's distribution."""

    options: dict[str, Any]
    """Those that differ from the defaults."""
    num_prefixes: int
    num_samples: int
    acceptance_rate: float
    tokens_per_round: float
    total_variation: float
    """Between frequencies and distribution, averaged over all tables."""
    noise_floor: float
    """What it is on average when nothing is wrong."""
    detectable: float
    """The total variation that these counts would detect nine times in ten."""
    tests: tuple[TestReport, ...]

    @property
    def passed(self) -> bool:
        """True when no test failed."""
        return not any(test.failed for test in self.tests)


@dataclass(frozen=True)
class AuditReport:
    """The whole audit."""

    false_alarm_rate: float
    """Chance that a correct decoder fails one of the statistical tests."""
    greedy: GreedyReport
    rollback: RollbackReport
    sampling: tuple[SamplingReport, ...]
    seconds: float
    engine_passes: int
    replayed_passes: int

    @property
    def passed(self) -> bool:
        """The verdict."""
        sampled = all(part.passed for part in self.sampling)
        return self.greedy.passed and self.rollback.passed and sampled

    def to_dict(self) -> dict[str, Any]:
        """The same as plain Python data, ready for JSON, with the verdicts."""
        data = asdict(self)
        data["passed"] = self.passed
        data["greedy"]["passed"] = self.greedy.passed
        data["rollback"]["passed"] = self.rollback.passed
        for entry, part in zip(data["sampling"], self.sampling, strict=True):
            entry["passed"] = part.passed
        return data
