"""Totals of a scheduler since its start."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec.runtime.decoding.results import GenerationResult

__all__ = ["Counters"]


@dataclass
class Counters:
    """Totals since the start, for metrics."""

    finished: dict[str, int] = field(default_factory=dict)
    """Requests by finish reason, "error" included."""
    prompt_tokens: int = 0
    new_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0
    target_passes: int = 0
    draft_passes: int = 0
    target_rows: int = 0

    def add(self, result: GenerationResult) -> None:
        """Count a request that has ended well."""
        self.count(result.finish_reason)
        self.prompt_tokens += len(result.prompt_token_ids)
        self.new_tokens += len(result.token_ids)
        self.drafted += result.stats.drafted
        self.accepted += result.stats.accepted
        self.rounds += result.stats.rounds

    def count(self, reason: str) -> None:
        """Count the end of a request."""
        self.finished[reason] = self.finished.get(reason, 0) + 1
