"""Format engines, modes and sizes for the terminal and for the page."""

from __future__ import annotations

from specdec.engines.package.manifest import EngineEntry

__all__ = ["engine_words", "mode_words", "size_words"]


def engine_words(entry: EngineEntry) -> str:
    """What an engine is, in one line."""
    shared = ", shares the target's KV cache" if entry.shares_target_cache else ""
    return (
        f"{entry.storage} weights ({entry.recipe}), {entry.compute} arithmetic, "
        f"{entry.max_length} tokens of context, {entry.layout} cache{shared}"
    )


def mode_words(temperature: float) -> str:
    """How tokens are chosen."""
    return "greedy" if temperature == 0.0 else f"temperature {temperature:g}"


def size_words(count: int) -> str:
    """Bytes in decimal units."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
