"""Split a forward pass into passes that an engine's profiles allow; pure arithmetic.

A profile takes a range of rows and gives logits for a few of the last. M rows of which the last N
are scored become

    M - N rows without logits, in the largest pieces,
    N rows, in pieces that a profile both takes and scores whole,

or a single pass, when one profile takes all M and scores N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.engines.package.build_record import TensorRTEntry

__all__ = ["Pass", "plan_passes"]


@dataclass(frozen=True)
class Pass:
    """One execution: `rows` rows by profile number `profile`, logits of the last `scored`."""

    profile: int
    rows: int
    scored: int
    """Rows whose logits the caller asked for; the graph itself scores at least one."""


def plan_passes(entry: TensorRTEntry, rows: int, scored: int) -> list[Pass]:
    """The passes for `rows` rows with logits of the last `scored`.

    Args:
        entry: the engine's profiles; one of them takes a single row.
        rows: at least 1.
        scored: 0 .. `rows`.
    """
    whole = _fitting(entry, rows, scored)
    if whole is not None:
        return [Pass(whole, rows, scored)]
    silent = rows - scored
    return [*_pieces(entry, silent, False), *_pieces(entry, scored, True)]


def _pieces(entry: TensorRTEntry, rows: int, scores: bool) -> list[Pass]:
    passes = []
    while rows:
        piece = _largest_piece(entry, rows, scores)
        scored = piece if scores else 0
        profile = _fitting(entry, piece, scored)
        assert profile is not None
        passes.append(Pass(profile, piece, scored))
        rows -= piece
    return passes


def _largest_piece(entry: TensorRTEntry, rows: int, scores: bool) -> int:
    """The most of `rows` that one profile takes (and scores whole); at least 1."""
    best = 1
    for (lowest, _, highest), scored in zip(entry.profiles, entry.scored_rows, strict=True):
        most = min(rows, highest, scored) if scores else min(rows, highest)
        if most >= lowest:
            best = max(best, most)
    return best


def _fitting(entry: TensorRTEntry, rows: int, scored: int) -> int | None:
    """The narrowest profile for the pass; of equals the first."""
    ranges: Sequence[tuple[int, int, int]] = entry.profiles
    fitting = [
        index
        for index, (lowest, _, highest) in enumerate(ranges)
        if lowest <= rows <= highest and scored <= entry.scored_rows[index]
    ]
    return min(fitting, key=lambda index: ranges[index][2], default=None)
