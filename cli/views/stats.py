"""The figures of one generation as a short table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from specdec.runtime.decoding.results import FinishReason
    from specdec.runtime.decoding.stats import GenerationStats

__all__ = ["print_stats", "stats_rows"]

_NAME_WIDTH = 13
_FINISH = {
    "stop": "an end token or a stop text",
    "length": "cut at --max-new-tokens",
    "context": "cut where the model's context is full",
    "cancelled": "interrupted",
}


def stats_rows(stats: GenerationStats, finish_reason: FinishReason) -> list[tuple[str, str]]:
    """Return (name, figure with its unit) in reading order."""
    rows = [
        ("tokens", f"{stats.prompt_tokens} in, {stats.new_tokens} out"),
        ("finish", f"{finish_reason}: {_FINISH[finish_reason]}"),
        ("speed", f"{stats.tokens_per_second:.1f} tokens/s after the prompt"),
        ("first token", f"after {_seconds(stats.time_to_first_token)}"),
        ("rounds", f"{stats.rounds}, {stats.tokens_per_round:.2f} tokens each"),
    ]
    if stats.drafted:
        rows.append(("drafted", _drafted(stats)))
        if stats.acceptance_by_position:
            rows.append(("by position", _by_position(stats)))
    rows.append(("time", _time(stats)))
    rows.append(("engine", stats.engine))
    if stats.fallback:
        rows.append(("fallback", stats.fallback))
    return rows


def print_stats(console: Console, stats: GenerationStats, finish_reason: FinishReason) -> None:
    """Print the table."""
    from rich.text import Text

    for name, figure in stats_rows(stats, finish_reason):
        console.print(Text.assemble((f"{name:<{_NAME_WIDTH}}", "bold"), figure), soft_wrap=True)


def _drafted(stats: GenerationStats) -> str:
    return (
        f"{stats.drafted}, {stats.accepted} accepted of {stats.evaluated} evaluated "
        f"({stats.acceptance_rate:.0%})"
    )


def _by_position(stats: GenerationStats) -> str:
    """Acceptance of the first, second, ... drafted token of a round."""
    pairs = stats.acceptance_by_position
    return " ".join(f"{accepted / evaluated:.0%}" for evaluated, accepted in pairs if evaluated)


def _time(stats: GenerationStats) -> str:
    parts = {
        "prompt": stats.prefill_seconds,
        "draft": stats.draft_seconds,
        "verify": stats.verify_seconds,
        "host": stats.host_seconds,
    }
    listed = ", ".join(f"{name} {_seconds(seconds)}" for name, seconds in parts.items())
    return f"{_seconds(stats.total_seconds)}: {listed}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
