"""`Engine` and `SlottedEngine` over the native CPU operators.

One session, one set of cache buffers with a place for each of several sequences. A pass takes the
rows of any of them and reads the weights once for all; one sequence is the special case, the
`Engine` protocol on slot 0. What a sequence computes does not depend on who shares its pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import EngineInfo, check_forward, check_truncate
from specdec.engines.errors import EngineError, one_line
from specdec.engines.in_place import PAST, PRESENT
from specdec.engines.native.passes import NativePass
from specdec.engines.onnxruntime.engine import KVCache, OrtEngine
from specdec.engines.onnxruntime.options import DEFAULT_ORT_OPTIONS, OrtOptions
from specdec.engines.slots import SlotRows, check_slots

__all__ = ["NativeEngine"]

_KEPT_RAGGED = 64
"""Shapes of passes over several sequences whose buffers are kept."""


class NativeEngine(OrtEngine):
    """One exported model over native operators, for one sequence or several."""

    def __init__(
        self,
        session: Any,
        info: EngineInfo,
        cache: KVCache,
        prefill_chunk: int,
        options: OrtOptions = DEFAULT_ORT_OPTIONS,
    ) -> None:
        """Wrap a loaded session; `specdec.engines.native.load` is the usual way in."""
        super().__init__(session, info, cache, prefill_chunk, options)
        self._ragged: dict[tuple[int, int, int], NativePass] = {}

    @property
    def num_slots(self) -> int:
        """How many sequences have a cache."""
        return len(self._cache.lengths)

    def slot_length(self, slot: int) -> int:
        """See `SlottedEngine.slot_length`."""
        return self._cache.lengths[slot]

    def truncate_slot(self, slot: int, length: int) -> None:
        """See `SlottedEngine.truncate_slot`: only a number changes."""
        check_truncate(self._info, self._cache.lengths[slot], length)
        self._cache.lengths[slot] = length

    def forward_rows(self, rows: Sequence[SlotRows]) -> list[NDArray[np.float32]]:
        """See `SlottedEngine.forward_rows`: one pass."""
        self._require_open()
        check_slots([entry.slot for entry in rows], self.num_slots)
        lengths = self._cache.lengths
        for entry in rows:
            token_ids = np.asarray(entry.token_ids)[np.newaxis]
            check_forward(self._info, lengths[entry.slot], token_ids, entry.num_logits)
        total = sum(len(entry.token_ids) for entry in rows)
        try:
            bound = self._ragged_pass(total, len(rows), sum(entry.num_logits for entry in rows))
            bound.run_rows(rows, lengths)
        except Exception as error:  # the binding raises a dozen unrelated classes
            raise EngineError(
                f"the {self._info.name} engine failed on {total} rows of {len(rows)} sequences: "
                f"{one_line(error)}"
            ) from error
        logits, first = [], 0
        for entry in rows:
            lengths[entry.slot] += len(entry.token_ids)
            logits.append(bound.logits_array[0, first : first + entry.num_logits])
            first += entry.num_logits
        return logits

    def close(self) -> None:
        """Drop the session, its bindings and, unless shared, the cache."""
        self._ragged.clear()
        super().close()

    def _ragged_pass(self, rows: int, sequences: int, num_logits: int) -> NativePass:
        """The pass of this shape; the least recently used makes room."""
        key = (rows, sequences, max(num_logits, 1))
        bound = self._ragged.pop(key, None)
        if bound is None:
            if len(self._ragged) >= _KEPT_RAGGED:
                del self._ragged[next(iter(self._ragged))]
            bound = self._native_pass(*key)
        self._ragged[key] = bound
        return bound

    def _bind(self, rows: int, num_logits: int, captures: bool) -> NativePass:
        assert not captures, "CUDA graphs on the CPU"
        return self._native_pass(rows, 1, num_logits)

    def _native_pass(self, rows: int, sequences: int, num_logits: int) -> NativePass:
        values = self._cache.buffers.items()
        return NativePass(
            self._session,
            {prefix + name: value for prefix in (PAST, PRESENT) for name, value in values},
            rows=rows,
            sequences=sequences,
            num_logits=num_logits,
            logits_width=self._info.logits_width,
        )
