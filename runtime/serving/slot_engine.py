"""One slot of a model behind the `Engine` protocol, so that the round loop runs on it unchanged.

A pass is not run where it is asked for: the request's greenlet hands it to the scheduler, which
runs it together with those of other requests, and goes on with the logits. So the loop, the
drafters and the verifiers of a request among many are the very code of one alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import greenlet
import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import EngineInfo, check_forward, check_truncate
from specdec.engines.slots import SlotRows, SlottedEngine

__all__ = ["Pass", "SlotEngine"]


@dataclass(frozen=True)
class Pass:
    """A pass that a request waits for."""

    engine: SlottedEngine
    rows: SlotRows

    @property
    def reads_prompt(self) -> bool:
        """It appends tokens and wants no logits."""
        return self.rows.num_logits == 0


class SlotEngine:
    """One sequence of a `SlottedEngine`."""

    def __init__(self, engine: SlottedEngine, slot: int, prefill_chunk: int) -> None:
        """Speak for `slot`.

        Args:
            prefill_chunk: rows of a pass that reads a prompt: what other requests wait for.
        """
        self._engine = engine
        self._slot = slot
        self.prefill_chunk = prefill_chunk

    @property
    def info(self) -> EngineInfo:
        """Static facts of the model."""
        return self._engine.info

    @property
    def length(self) -> int:
        """Tokens in the slot's cache."""
        return self._engine.slot_length(self._slot)

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> NDArray[np.floating[Any]]:
        """See `Engine.forward`; must be called in a greenlet that the scheduler started."""
        check_forward(self.info, self.length, token_ids, num_logits)
        scheduler = greenlet.getcurrent().parent
        assert scheduler is not None, "a pass was asked for outside the scheduler"
        rows = SlotRows(self._slot, token_ids[0], num_logits)
        logits: NDArray[np.floating[Any]] = scheduler.switch(Pass(self._engine, rows))
        return logits[np.newaxis]

    def truncate(self, length: int) -> None:
        """See `Engine.truncate`."""
        check_truncate(self.info, self.length, length)
        self._engine.truncate_slot(self._slot, length)

    def close(self) -> None:
        """Nothing: the model is closed by whoever loaded it."""
