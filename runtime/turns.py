"""Whose turn it is: a lock that nobody can leave locked, whatever interrupts its holder.

A `threading.Lock` stays locked when an interrupt strikes between taking it and the code that
would release it. Here a turn is a claim by an object, and ends in either of two ways: its holder
says that it has ended, or the holder is gone. Claims form a chain in which each link is set once,
by `dict.setdefault`, which is one step: a claim was made or it was not.
"""

from __future__ import annotations

import weakref
from typing import Protocol

__all__ = ["Holder", "LastTurn", "Turns"]


class Holder(Protocol):
    """What takes a turn."""

    @property
    def ended(self) -> bool:
        """True when the turn is over; then it stays so."""
        ...


class LastTurn:
    """The turn of whoever closes a thing for good: it never ends."""

    ended = False


class _Claim:
    def __init__(self, holder: Holder | None) -> None:
        self._holder = None if holder is None else weakref.ref(holder)
        self.following: dict[str, _Claim] = {}

    def holder(self) -> Holder | None:
        """Whoever has the turn still, None when it is over."""
        found = None if self._holder is None else self._holder()
        return None if found is None or found.ended else found


class Turns:
    """Turns of one thing, such as a decoder; every method may be called from any thread."""

    def __init__(self) -> None:
        self._latest = _Claim(None)

    def holder(self) -> Holder | None:
        """Whoever has the turn, None when it is free."""
        return self._last().holder()

    def take(self, holder: Holder) -> bool:
        """Claim the turn; False when another has it. Only a weak reference is kept."""
        mine = _Claim(holder)
        while True:
            last = self._last()
            if last.holder() is not None:
                return False
            if last.following.setdefault("claim", mine) is mine:
                return True

    def _last(self) -> _Claim:
        claim = self._latest
        while (following := claim.following.get("claim")) is not None:
            claim = following
        self._latest = claim  # a hint: an older one only makes the walk longer
        return claim
