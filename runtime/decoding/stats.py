"""Counts and times of one generation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from specdec.runtime.meter import Meter

__all__ = ["GenerationStats", "Recorder"]


@dataclass(frozen=True)
class GenerationStats:
    """Counts are of committed tokens and finished rounds; times are in seconds.

    Time during which a stream waits for its consumer is not counted.
    """

    prompt_tokens: int
    new_tokens: int
    rounds: int
    """Target passes after the prefill, plain ones included."""
    drafted: int
    """Tokens proposed to the target."""
    evaluated: int
    """Drafted tokens whose outcome was decided: accepted, or rejected first in a round."""
    accepted: int
    """Drafted tokens that became output."""
    tokens_per_round: float
    acceptance_rate: float
    """accepted / evaluated; 0 when nothing was evaluated."""
    acceptance_by_position: tuple[tuple[int, int], ...]
    """(evaluated, accepted) of the first, second, ... drafted token of a round."""
    draft_lengths: dict[int, int]
    """Number of rounds by number of drafted tokens."""
    prefill_seconds: float
    """Inside the engines, on the prompt."""
    draft_seconds: float
    """Inside the draft engine."""
    verify_seconds: float
    """Inside the target engine, after the prefill."""
    host_seconds: float
    """Everything else: sampling, verification, text."""
    total_seconds: float
    time_to_first_token: float
    tokens_per_second: float
    """Decode speed: new_tokens / (total_seconds - prefill_seconds)."""
    fallback: str | None
    """The reason why decoding was or became plain although there was a draft; else None."""
    engine: str
    """What computed the target: "native avx512", "onnxruntime", or another backend's name."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain Python data, ready for JSON."""
        data = asdict(self)
        data["acceptance_by_position"] = [list(pair) for pair in self.acceptance_by_position]
        data["draft_lengths"] = {str(k): n for k, n in sorted(self.draft_lengths.items())}
        return data


class Recorder:
    """Counts rounds while a generation runs."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.meter = Meter()
        self.active_seconds = 0.0
        self.first_token_seconds = 0.0
        self.fallback: str | None = None
        self._rounds = self._drafted = 0
        self._positions: list[list[int]] = []
        self._lengths: dict[int, int] = {}

    def add_round(self, drafted: int, evaluated: int, accepted: int) -> None:
        """Count one finished round, after its tokens were cut at the end of the output."""
        self._rounds += 1
        self._drafted += drafted
        self._lengths[drafted] = self._lengths.get(drafted, 0) + 1
        for position in range(evaluated):
            if position == len(self._positions):
                self._positions.append([0, 0])
            self._positions[position][0] += 1
            self._positions[position][1] += position < accepted

    def stats(self, prompt_tokens: int, new_tokens: int) -> GenerationStats:
        """Freeze the counts."""
        evaluated = sum(pair[0] for pair in self._positions)
        accepted = sum(pair[1] for pair in self._positions)
        seconds = self.meter.seconds
        total = max(self.active_seconds, sum(seconds.values()))
        decoding = total - seconds["prefill"]
        return GenerationStats(
            prompt_tokens=prompt_tokens,
            new_tokens=new_tokens,
            rounds=self._rounds,
            drafted=self._drafted,
            evaluated=evaluated,
            accepted=accepted,
            tokens_per_round=new_tokens / self._rounds if self._rounds else 0.0,
            acceptance_rate=accepted / evaluated if evaluated else 0.0,
            acceptance_by_position=tuple((pair[0], pair[1]) for pair in self._positions),
            draft_lengths=dict(self._lengths),
            prefill_seconds=seconds["prefill"],
            draft_seconds=seconds["draft"],
            verify_seconds=seconds["verify"],
            host_seconds=total - sum(seconds.values()),
            total_seconds=total,
            time_to_first_token=self.first_token_seconds,
            tokens_per_second=new_tokens / decoding if decoding > 0.0 else 0.0,
            fallback=self.fallback,
            engine=self.engine,
        )
