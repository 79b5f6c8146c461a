"""Slots: one model that holds the KV caches of several sequences, and passes over rows of many.

One sequence is the special case of one slot. An engine that computes the rows of all sequences
in one pass shares the read of its weights between them; `EngineSlots` gives any other engine the
same interface, slot by slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import Engine, EngineInfo

__all__ = ["EngineSlots", "SlotRows", "SlottedEngine"]


@dataclass(frozen=True)
class SlotRows:
    """What one sequence asks of a pass."""

    slot: int
    """0 .. num_slots - 1; at most once in a pass."""
    token_ids: NDArray[np.int64]
    """int64 [M], M >= 1: the tokens to append to the slot's cache."""
    num_logits: int
    """How many of the last rows to score, 0 .. M."""


@runtime_checkable
class SlottedEngine(Protocol):
    """One model and the KV caches of several sequences. Not thread-safe: one caller at a time."""

    @property
    def info(self) -> EngineInfo:
        """Static facts; `max_length` is the capacity of each slot."""
        ...

    @property
    def num_slots(self) -> int:
        """How many sequences have a cache."""
        ...

    def slot_length(self, slot: int) -> int:
        """Number of tokens whose keys and values are in the cache of `slot`."""
        ...

    def forward_rows(self, rows: Sequence[SlotRows]) -> list[NDArray[np.floating[Any]]]:
        """Append tokens to several caches in one call.

        Returns:
            For each entry float32 (or wider) [num_logits, logits_width]. They may be views of
            buffers that the next pass overwrites.

        Raises:
            ValueError: a slot is named twice or does not exist, or an argument is malformed.
            ContextOverflowError: rows do not fit in their slot.
            EngineError: the backend failed. In every case no length has changed.
        """
        ...

    def truncate_slot(self, slot: int, length: int) -> None:
        """Forget the tokens of `slot` from position `length` (absolute) on, in O(1).

        Raises:
            ValueError: `length` is negative or larger than the slot's length.
        """
        ...

    def close(self) -> None:
        """Release the backend's resources; further calls are errors. Idempotent."""
        ...


class EngineSlots:
    """Several engines of one model, each with a cache of its own, as the slots of one.

    Attributes:
        engines: one for each slot.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        """Take over engines of equal geometry, one for each slot.

        Raises:
            ValueError: there is none, or two of them differ.
        """
        if not engines:
            raise ValueError("engines is empty; allowed is one engine or more, one for each slot")
        different = [e.info for e in engines if e.info != engines[0].info]
        if different:
            raise ValueError(
                f"the engines of two slots differ: {engines[0].info} and {different[0]}; allowed "
                "are engines of one model"
            )
        self.engines = tuple(engines)

    @property
    def info(self) -> EngineInfo:
        """Static facts of the model."""
        return self.engines[0].info

    @property
    def num_slots(self) -> int:
        """How many sequences have a cache."""
        return len(self.engines)

    @property
    def prefill_chunk(self) -> int | None:
        """Rows per pass that suit a long prompt, where the engines say so."""
        return getattr(self.engines[0], "prefill_chunk", None)

    def slot_length(self, slot: int) -> int:
        """See `SlottedEngine.slot_length`."""
        return self.engines[slot].length

    def forward_rows(self, rows: Sequence[SlotRows]) -> list[NDArray[np.floating[Any]]]:
        """See `SlottedEngine.forward_rows`; the passes run one after the other."""
        check_slots([entry.slot for entry in rows], self.num_slots)
        before = [self.slot_length(entry.slot) for entry in rows]
        scored: list[NDArray[np.floating[Any]]] = []
        try:
            for entry in rows:
                logits = self.engines[entry.slot].forward(
                    entry.token_ids[np.newaxis], entry.num_logits
                )
                scored.append(logits[0].copy() if len(rows) > 1 else logits[0])
        except BaseException:
            for entry, length in zip(rows, before, strict=True):
                if self.slot_length(entry.slot) > length:
                    self.truncate_slot(entry.slot, length)
            raise
        return scored

    def truncate_slot(self, slot: int, length: int) -> None:
        """See `SlottedEngine.truncate_slot`."""
        self.engines[slot].truncate(length)

    def close(self) -> None:
        """Close every engine."""
        for engine in self.engines:
            engine.close()


def check_slots(slots: Sequence[int], num_slots: int) -> None:
    """Validate the slots of a pass the same way for every backend.

    Raises:
        ValueError: none is named, one twice, or one that does not exist.
    """
    if not slots:
        raise ValueError("a pass without rows; allowed is one sequence or more")
    for slot in slots:
        if not 0 <= slot < num_slots:
            raise ValueError(f"slot is {slot}; allowed is 0 .. {num_slots - 1}")
    if len(set(slots)) < len(slots):
        raise ValueError(f"a slot is named twice in {list(slots)}; allowed is once a pass")
