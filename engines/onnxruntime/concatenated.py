"""`Engine` over ONNX Runtime, concatenated KV layout: correct for every graph, but slower.

Architectures whose attention the in-place node cannot express are exported the plain way: the
graph takes `past`, and returns `present` = past with the new rows appended. Each pass copies the
cache once, and a truncation copies it once more (at the next pass).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import EngineInfo, check_forward, check_truncate
from specdec.engines.errors import EngineError, one_line
from specdec.engines.in_place import PAST, PRESENT

__all__ = ["ConcatenatedEngine"]


class ConcatenatedEngine:
    """A model exported with concatenated keys and values; see `Engine` for the contract."""

    def __init__(self, session: Any, info: EngineInfo, prefill_chunk: int) -> None:
        """Wrap a loaded session whose past inputs name their growing axis."""
        self._session = session
        self._info = info
        self._prefill_chunk = prefill_chunk
        self._inputs = {node.name: node for node in session.get_inputs()}
        self._axes = {
            name[len(PAST) :]: _growing_axis(node, info.name)
            for name, node in self._inputs.items()
            if name.startswith(PAST)
        }
        self._length = 0
        self._past = self._empty()

    def __repr__(self) -> str:
        return f"<ConcatenatedEngine: {self._info.name!r}, {self._info.max_length} of context>"

    @property
    def info(self) -> EngineInfo:
        """Static facts about the engine."""
        return self._info

    @property
    def length(self) -> int:
        """Tokens whose keys and values are in the cache."""
        return self._length

    @property
    def prefill_chunk(self) -> int:
        """Rows per pass that suit a long prompt."""
        return self._prefill_chunk

    def beside(self) -> ConcatenatedEngine:
        """The same model with a KV cache of its own; the session is shared."""
        if self._session is None:
            raise EngineError(f"the {self._info.name} engine is closed; load the package again")
        return ConcatenatedEngine(self._session, self._info, self._prefill_chunk)

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> NDArray[np.float32]:
        """See `Engine.forward`."""
        if self._session is None:
            raise EngineError(f"the {self._info.name} engine is closed; load the package again")
        past = self._length
        rows = check_forward(self._info, past, token_ids, num_logits)
        feeds: dict[str, NDArray[Any]] = {
            "input_ids": token_ids,
            "attention_mask": np.ones((1, past + rows), np.int64),
            "position_ids": np.arange(past, past + rows)[None],
            "logit_rows": np.arange(rows - max(num_logits, 1), rows),
        }
        feeds = {name: value for name, value in feeds.items() if name in self._inputs}
        for name, array in self._past.items():
            axis = self._axes[name]
            if array.shape[axis] != past:  # truncated since the last pass
                array = np.ascontiguousarray(np.take(array, range(past), axis=axis))
            feeds[PAST + name] = array
        names = ["logits", *(PRESENT + name for name in self._past)]
        try:
            logits, *present = self._session.run(names, feeds)
        except Exception as error:  # the binding raises a dozen unrelated classes
            raise EngineError(
                f"the {self._info.name} engine failed on {rows} rows at position {past}: "
                f"{one_line(error)}"
            ) from error
        self._past = dict(zip(self._past, present, strict=True))
        self._length = past + rows
        scored: NDArray[np.float32] = logits[:, :num_logits].astype(np.float32, copy=False)
        return scored

    def truncate(self, length: int) -> None:
        """See `Engine.truncate`; the copy happens at the next pass."""
        check_truncate(self._info, self._length, length)
        self._length = length

    def close(self) -> None:
        """Drop the session and the cache."""
        self._session = None
        self._past = {}

    def _empty(self) -> dict[str, NDArray[Any]]:
        past: dict[str, NDArray[Any]] = {}
        for name, axis in self._axes.items():
            node = self._inputs[PAST + name]
            shape = [size if isinstance(size, int) else 1 for size in node.shape]
            shape[axis] = 0
            dtype = np.float16 if node.type == "tensor(float16)" else np.float32
            past[name] = np.zeros(shape, dtype)
        return past


def _growing_axis(node: Any, engine: str) -> int:
    """The axis of a past input that holds positions."""
    for axis, size in enumerate(node.shape):
        if isinstance(size, str) and "past" in size:
            return axis
    raise EngineError(
        f"input {node.name} of the {engine} engine has shape {node.shape}, without an axis named "
        "past_...; allowed is a graph written by specdec-export"
    )
