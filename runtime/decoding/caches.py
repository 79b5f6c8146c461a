"""Keep every KV cache a prefix of the committed ids.

Lengths during a round, with n committed tokens, K drafted and m of them accepted:

    moment           committed   target cache   draft cache (its own)
    round starts     n           n - 1          n - 1, or less when it fell behind
    after drafting   n           n - 1          n + K - 1
    after verify     n           n + K          n + K - 1
    after truncate   n + m + 1   n + m          n + m, or n + K - 1 when all were accepted

The last committed token is pending: its keys and values are written by the next pass. A
draft that shares the target's cache has no length of its own; its rows are forgotten before
the target verifies.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec.engines.engine import Engine

__all__ = ["Caches", "common_prefix"]


class Caches:
    """The committed ids and the engines whose caches follow them.

    Attributes:
        ids: prompt and output so far; the loop appends to it.
    """

    def __init__(self, target: Engine, draft: Engine | None = None) -> None:
        """Track a target and a draft that has its own cache (None when it shares)."""
        self.target = target
        self.ids: list[int] = []
        self._engines = [target] if draft is None else [target, draft]
        self._is_open = False  # a generation has begun and has not brought them in line

    def restart(self, ids: Sequence[int], reuse: bool) -> None:
        """Begin a generation over `ids`, keeping cached tokens that still apply.

        Args:
            ids: the new prompt, at least one token; its last token stays pending.
            reuse: keep the longest common prefix of the caches; else, and after a generation that
                was interrupted before its end, start empty.
        """
        is_sound = reuse and not self._is_open
        self._is_open = True
        shared = min(common_prefix(self.ids, ids), len(ids) - 1) if is_sound else 0
        self._cut(shared)
        self.ids = list(ids)

    def align(self) -> None:
        """At the end: cut every cache back to the committed ids, the pending token excluded."""
        self._cut(len(self.ids) - 1)
        self._is_open = False

    def forget_draft_rows(self) -> None:
        """After drafting on a shared cache: truncate it to the target's length."""
        if self.target.length >= len(self.ids):
            self.target.truncate(len(self.ids) - 1)

    def _cut(self, length: int) -> None:
        for engine in self._engines:
            if engine.length > length:
                engine.truncate(length)


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    count = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        count += 1
    return count
