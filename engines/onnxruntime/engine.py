"""`Engine` over ONNX Runtime, in-place KV layout.

The graph's `past` and `present` are the same buffers, of fixed capacity, and the graph takes
lengths instead of a mask. So a forward pass is: write the ids and two lengths into arrays that
were bound once, run, read the logits array. Truncation changes one number.

    input_ids             int64 [1, M]     the new tokens
    position_ids          int64 [1, M]     only if the graph rotates by position itself
    seqlens_k             int32 [1]        length + M - 1
    total_sequence_length int32 [1]        length + M
    logit_rows            int64 [N]        which of the M rows to score: the last N
    past_key_values.<i>.key|value, present.<i>.key|value   [1, kv_heads, capacity, head_size]
    logits                float32 [1, N, logits_width]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from specdec.engines.devices import Device
from specdec.engines.engine import EngineInfo, check_forward
from specdec.engines.errors import EngineError, one_line
from specdec.engines.in_place import PAST, PRESENT, InPlaceEngine
from specdec.engines.onnxruntime.binding import HOST, BoundPass, Pass, input_devices
from specdec.engines.onnxruntime.head import LogitsHead
from specdec.engines.onnxruntime.options import DEFAULT_ORT_OPTIONS, OrtOptions
from specdec.engines.reduction import ReducedRow, Reduction

__all__ = ["KVCache", "OrtEngine"]

_Read = TypeVar("_Read")

_KEPT_PASSES = 64
_CAPTURED_ROWS = 33
"""Passes up to the largest verification are captured as CUDA graphs; prompts are not. ONNX Runtime
keeps a captured graph as long as its session, so none is ever captured twice."""


@dataclass
class KVCache:
    """The key and value buffers of one model and how much of them is filled."""

    buffers: dict[str, Any]
    """`onnxruntime.OrtValue` [slots, kv_heads, capacity, head_size] by "<layer>.key|value"."""
    device: Device
    lengths: list[int] = field(default_factory=lambda: [0])
    """Of each slot, in tokens; one slot unless the engine takes the rows of several sequences."""

    @property
    def length(self) -> int:
        """Of the first slot: the cache of an engine of one sequence."""
        return self.lengths[0]

    @length.setter
    def length(self, length: int) -> None:
        self.lengths[0] = length


class OrtEngine(InPlaceEngine[KVCache]):
    """One exported model behind the `Engine` protocol; see `specdec.engines.engine`."""

    def __init__(
        self,
        session: Any,
        info: EngineInfo,
        cache: KVCache,
        prefill_chunk: int,
        options: OrtOptions = DEFAULT_ORT_OPTIONS,
    ) -> None:
        """Wrap a loaded session; `specdec.engines.onnxruntime.load` is the usual way in."""
        self._session = session
        super().__init__(info, cache, prefill_chunk)
        self._options = options
        self._reduces = options.reduce_logits
        self._captures = options.cuda_graphs and cache.device.kind == "cuda"
        self._places = input_devices(session, cache.device)
        self._head = LogitsHead(info.name, cache.device, info.vocab_size, info.logits_width)
        self._passes: dict[tuple[int, int, bool], Pass] = {}
        self._retired_bytes = self._num_graphs = 0

    @property
    def bytes_moved(self) -> int:
        """Bytes copied between host and device so far; none on the CPU."""
        moved = sum(bound.bytes_moved for bound in self._passes.values())
        return self._retired_bytes + moved + self._head.bytes_moved

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> NDArray[np.float32]:
        """See `Engine.forward`; the result is a view of a buffer that the next pass overwrites."""
        if num_logits == 0:
            self._run(token_ids, 0, lambda _: None)
            return np.empty((1, 0, self._info.logits_width), np.float32)
        return self._run(token_ids, num_logits, self._head.full)

    def reduces(self, reduction: Reduction) -> bool:
        """See `ReducingEngine.reduces`: on the CPU only sums over whole rows are worth it."""
        if reduction.count > self._info.vocab_size or self._reduces is False:
            return False
        pays = self._cache.device != HOST or reduction.temperature is not None
        return pays or self._reduces is True

    def forward_reduced(
        self, token_ids: NDArray[np.int64], num_logits: int, reduction: Reduction
    ) -> list[ReducedRow]:
        """See `ReducingEngine.forward_reduced`."""
        if num_logits == 0:
            return self._run(token_ids, 0, lambda _: [])
        return self._run(token_ids, num_logits, lambda bound: self._head.reduced(bound, reduction))

    def beside(self, cache: KVCache | None = None) -> OrtEngine:
        """The same model with a KV cache of its own, for another sequence.

        The session is shared, so the weights are in memory once, and the two engines must not
        run at the same time.

        Args:
            cache: the cache to use, of the same geometry; None allocates an empty one.

        Raises:
            EngineError: this engine is closed, or the memory of a cache cannot be had.
        """
        if self._session is None:
            raise EngineError(f"the {self._info.name} engine is closed; load the package again")
        cache = cache or _empty_like(self._cache, self._info)
        return OrtEngine(self._session, self._info, cache, self._prefill_chunk, self._options)

    def close(self) -> None:
        """Drop the session, its bindings and, unless shared, the cache."""
        self._passes.clear()
        self._head.close()
        self._session = None
        self._cache = KVCache({}, self._cache.device)

    def _run(
        self, token_ids: NDArray[np.int64], num_logits: int, read: Callable[[Pass], _Read]
    ) -> _Read:
        """Run a pass that scores `num_logits` rows, or one when none is wanted, and read it."""
        self._require_open()
        past = self._cache.length
        rows = check_forward(self._info, past, token_ids, num_logits)
        try:
            bound = self._prepared(rows, num_logits)
            bound.run(token_ids, past)
            result = read(bound)
        except Exception as error:  # the binding raises a dozen unrelated classes
            raise EngineError(
                f"the {self._info.name} engine failed on {rows} rows at position {past}: "
                f"{one_line(error)}"
            ) from error
        self._cache.length = past + rows
        return result

    def _require_open(self) -> None:
        if self._session is None:
            raise EngineError(f"the {self._info.name} engine is closed; load the package again")

    def _prepared(self, rows: int, num_logits: int) -> Pass:
        """The pass of this shape; the least recently used makes room, captured ones stay."""
        captures = self._captures and num_logits > 0 and rows <= _CAPTURED_ROWS
        key = (rows, max(num_logits, 1), captures)
        bound = self._passes.pop(key, None)
        if bound is None:
            loose = [known for known in self._passes if not known[2]]
            if len(loose) >= _KEPT_PASSES:
                oldest = self._passes.pop(loose[0])
                self._retired_bytes += oldest.bytes_moved
                self._head.forget(oldest)
            bound = self._bind(rows, max(num_logits, 1), captures)
        self._passes[key] = bound
        return bound

    def _bind(self, rows: int, num_logits: int, captures: bool) -> Pass:
        values = self._cache.buffers.items()
        return BoundPass(
            self._session,
            self._places,
            {prefix + name: value for prefix in (PAST, PRESENT) for name, value in values},
            device=self._cache.device,
            rows=rows,
            num_logits=num_logits,
            logits_width=self._info.logits_width,
            fixed_total=self._info.max_length if captures else None,
            run_options=self._run_options(captures),
        )

    def _run_options(self, captures: bool) -> Any:
        """Number of the CUDA graph of a pass, -1 for none; None where graphs are not captured."""
        if not self._captures:
            return None
        from onnxruntime import RunOptions

        self._num_graphs += captures
        options = RunOptions()
        options.add_run_config_entry("gpu_graph_id", str(self._num_graphs if captures else -1))
        return options


def _empty_like(cache: KVCache, info: EngineInfo) -> KVCache:
    """Zeroed buffers of the same shapes; on the CPU the system hands out pages as they fill."""
    from onnxruntime import OrtValue

    buffers: dict[str, Any] = {}
    try:
        for name, value in cache.buffers.items():
            element = value.data_type().removeprefix("tensor(").removesuffix(")")
            zeros = np.zeros(value.shape(), {"float": "float32"}.get(element, element))
            place = (cache.device.kind, cache.device.index)
            buffers[name] = OrtValue.ortvalue_from_numpy(zeros, *place)
    except Exception as error:  # MemoryError, or whatever the device's allocator raises
        raise EngineError(
            f"another KV cache of {info.max_length} tokens for the {info.name} engine cannot be "
            f"had on {cache.device}; use fewer slots, or export with a smaller --max-length"
        ) from error
    return KVCache(buffers, cache.device)
