"""A pass of a native graph with every buffer allocated once: rows of one sequence or of several.

input_ids     int64 [1, T]      the rows of all B sequences, side by side
position_ids  int64 [1, T]      only if the graph rotates by position itself
query_starts  int32 [B + 1]     sequence b has rows query_starts[b] .. query_starts[b + 1] - 1
past_lengths  int32 [B]         tokens of it that are cached
slots         int32 [B]         where: the first index of the cache buffers
logit_rows    int64 [N]         which of the T rows to score
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.slots import SlotRows

__all__ = ["LENGTH_INPUTS", "NativePass"]

LENGTH_INPUTS = ("query_starts", "past_lengths", "slots")
"""Inputs through which a native graph is told which rows are whose."""


class NativePass:
    """One prepared pass of T rows of B sequences, N of them scored.

    Attributes:
        logits: `OrtValue` float32 [1, N, logits_width].
        logits_array: the same memory.
        bytes_moved: between host and device: none.
    """

    def __init__(
        self,
        session: Any,
        cache: dict[str, Any],
        *,
        rows: int,
        sequences: int,
        num_logits: int,
        logits_width: int,
    ) -> None:
        """Allocate and bind.

        Args:
            session: an `onnxruntime.InferenceSession` of a native graph.
            cache: `OrtValue` by full name of input or output, past and present alike.
            rows: T.
            sequences: B.
            num_logits: N, at least 1.
            logits_width: columns of the logits.
        """
        from onnxruntime import OrtValue

        self._session = session
        names = {node.name for node in session.get_inputs()}
        self._arrays: dict[str, NDArray[Any]] = {
            "input_ids": np.zeros((1, rows), np.int64),
            "position_ids": np.zeros((1, rows), np.int64),
            "query_starts": np.zeros(sequences + 1, np.int32),
            "past_lengths": np.zeros(sequences, np.int32),
            "slots": np.zeros(sequences, np.int32),
            "logit_rows": np.arange(rows - num_logits, rows),
        }
        self._arrays["query_starts"][-1] = rows
        self._steps = np.arange(rows)
        self.bytes_moved = 0
        self.logits_array: NDArray[np.float32] = np.zeros((1, num_logits, logits_width), np.float32)
        self.logits: Any = OrtValue.ortvalue_from_numpy(self.logits_array)
        self._binding = session.io_binding()
        # Bound by address: arrays and cache live as long as the binding.
        self._values = {
            name: OrtValue.ortvalue_from_numpy(array)
            for name, array in self._arrays.items()
            if name in names
        }
        self._cache = cache
        for name, value in self._values.items():
            self._binding.bind_ortvalue_input(name, value)
        self._binding.bind_ortvalue_output("logits", self.logits)
        for name, value in cache.items():
            bind = self._binding.bind_ortvalue_output
            (self._binding.bind_ortvalue_input if name in names else bind)(name, value)

    def run(self, token_ids: NDArray[np.int64], past: int) -> None:
        """Append `token_ids` [1, T] to the first slot, which holds `past` tokens."""
        self._arrays["input_ids"][...] = token_ids
        self._arrays["position_ids"][...] = past + self._steps
        self._arrays["past_lengths"][0] = past
        self._session.run_with_iobinding(self._binding)

    def run_rows(self, rows: Sequence[SlotRows], lengths: Sequence[int]) -> None:
        """Append the rows of several sequences.

        Args:
            rows: B of them, T tokens and, unless none is, N scored rows together.
            lengths: tokens cached in each slot of the cache.
        """
        first = scored = 0
        for index, entry in enumerate(rows):
            past, count = lengths[entry.slot], len(entry.token_ids)
            end = first + count
            self._arrays["input_ids"][0, first:end] = entry.token_ids
            self._arrays["position_ids"][0, first:end] = np.arange(past, past + count)
            self._arrays["query_starts"][index + 1] = end
            self._arrays["past_lengths"][index] = past
            self._arrays["slots"][index] = entry.slot
            self._arrays["logit_rows"][scored : scored + entry.num_logits] = np.arange(
                end - entry.num_logits, end
            )
            first, scored = end, scored + entry.num_logits
        self._session.run_with_iobinding(self._binding)
