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

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.devices import Device
from specdec.engines.engine import Engine, EngineInfo, check_forward
from specdec.engines.errors import EngineError
from specdec.engines.manifest_entries import EngineEntry
from specdec.engines.ort_interface import PAST, PRESENT, check_interface
from specdec.engines.ort_session import create_session, one_line

__all__ = ["KVCache", "OrtEngine", "load_ort_engine"]

_KEPT_WIDTHS = 64


@dataclass
class KVCache:
    """The key and value buffers of one model and how much of them is filled."""

    buffers: dict[str, Any]
    """`onnxruntime.OrtValue` by "<layer>.key" and "<layer>.value"."""
    device: Device
    length: int = 0


@dataclass(frozen=True)
class _Width:
    """One prepared call: M rows, N scored."""

    binding: Any
    token_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    logits: NDArray[np.float32]
    keep_alive: tuple[Any, ...]
    """ORT reads these arrays by address: they live as long as the binding."""


class OrtEngine:
    """One exported model behind the `Engine` protocol; see `specdec.engines.engine`."""

    def __init__(self, session: Any, info: EngineInfo, cache: KVCache, prefill_chunk: int) -> None:
        """Wrap a loaded session; `load_ort_engine` is the usual way in."""
        self._session = session
        self._info = info
        self._cache = cache
        self._prefill_chunk = prefill_chunk
        self._inputs = {node.name for node in session.get_inputs()}
        self._seqlens_k = np.zeros(1, np.int32)
        self._total_length = np.zeros(1, np.int32)
        self._widths: dict[tuple[int, int], _Width] = {}

    @property
    def info(self) -> EngineInfo:
        """Static facts about the engine."""
        return self._info

    @property
    def cache(self) -> KVCache:
        """The KV cache, which an engine of the same geometry may share."""
        return self._cache

    @property
    def length(self) -> int:
        """Tokens whose keys and values are in the cache (shared with whoever shares it)."""
        return self._cache.length

    @property
    def prefill_chunk(self) -> int:
        """Rows per pass that suit a long prompt."""
        return self._prefill_chunk

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> NDArray[np.float32]:
        """See `Engine.forward`; the result is a view of the bound output array."""
        if self._session is None:
            raise EngineError(f"the {self._info.name} engine is closed; load the package again")
        past = self._cache.length
        rows = check_forward(self._info, past, token_ids, num_logits)
        width = self._width(rows, max(num_logits, 1))
        np.copyto(width.token_ids, token_ids)
        width.positions[0] = np.arange(past, past + rows)
        self._seqlens_k[0] = past + rows - 1
        self._total_length[0] = past + rows
        try:
            self._session.run_with_iobinding(width.binding)
        except Exception as error:  # the binding raises a dozen unrelated classes
            raise EngineError(
                f"the {self._info.name} engine failed on {rows} rows at position {past}: "
                f"{one_line(error)}"
            ) from error
        self._cache.length = past + rows
        return width.logits[:, :num_logits]

    def truncate(self, length: int) -> None:
        """See `Engine.truncate`: the buffers are untouched, only the length changes."""
        if not 0 <= length <= self._cache.length:
            raise ValueError(
                f"cannot truncate the {self._info.name} engine to {length}; "
                f"allowed is 0 .. {self._cache.length}"
            )
        self._cache.length = length

    def close(self) -> None:
        """Drop the session, its bindings and, unless shared, the cache."""
        self._widths.clear()
        self._session = None
        self._cache = KVCache({}, self._cache.device)

    def _width(self, rows: int, num_logits: int) -> _Width:
        key = (rows, num_logits)
        width = self._widths.get(key)
        if width is None:
            if len(self._widths) >= _KEPT_WIDTHS:
                self._widths.pop(next(iter(self._widths)))
            width = self._widths[key] = self._bind(rows, num_logits)
        return width

    def _bind(self, rows: int, num_logits: int) -> _Width:
        from onnxruntime import OrtValue

        token_ids = np.zeros((1, rows), np.int64)
        positions = np.zeros((1, rows), np.int64)
        logits = np.zeros((1, num_logits, self._info.logits_width), np.float32)
        arrays: dict[str, NDArray[Any]] = {
            "input_ids": token_ids,
            "position_ids": positions,
            "seqlens_k": self._seqlens_k,
            "total_sequence_length": self._total_length,
            "logit_rows": np.arange(rows - num_logits, rows),
        }
        binding = self._session.io_binding()
        kept: list[Any] = []
        for name, array in arrays.items():
            if name in self._inputs:
                value = OrtValue.ortvalue_from_numpy(array)
                binding.bind_ortvalue_input(name, value)
                kept += [array, value]
        output = OrtValue.ortvalue_from_numpy(logits)
        binding.bind_ortvalue_output("logits", output)
        for name, value in self._cache.buffers.items():
            binding.bind_ortvalue_input(PAST + name, value)
            binding.bind_ortvalue_output(PRESENT + name, value)
        return _Width(binding, token_ids, positions, logits, (*kept, output, self._cache.buffers))


def load_ort_engine(
    graph: Path,
    entry: EngineEntry,
    *,
    name: str,
    device: Device,
    num_threads: int | None = None,
    share_cache_with: Engine | None = None,
) -> Engine:
    """Load one engine of a package.

    Args:
        graph: the `.onnx` file.
        entry: its manifest entry.
        name: "target" or "draft".
        device: where to run.
        num_threads: CPU threads, None for the default.
        share_cache_with: read and write this engine's KV cache instead of an own one.

    Raises:
        EngineError: the graph does not load, or is not what the entry says.
        MissingDependencyError, DeviceError: see `create_session`.
    """
    session = create_session(graph, name=name, device=device, num_threads=num_threads)
    info = EngineInfo(
        name=name,
        vocab_size=entry.vocab_size,
        logits_width=entry.logits_width,
        max_length=entry.max_length,
        num_layers=entry.num_layers,
        num_attention_heads=entry.num_attention_heads,
        num_kv_heads=entry.num_kv_heads,
        head_size=entry.head_size,
        storage=entry.storage,
        compute=entry.compute,
        backend=entry.backend,
        device=str(device),
    )
    check_interface(session, entry, name)
    if entry.layout == "concatenated":
        from specdec.engines.ort_concatenated import ConcatenatedEngine

        return ConcatenatedEngine(session, info, entry.prefill_chunk)
    if share_cache_with is None:
        cache = KVCache(_allocate(entry, name, device), device)
    elif isinstance(share_cache_with, OrtEngine):
        cache = share_cache_with.cache
    else:
        raise EngineError(
            f"the {name} engine cannot share the cache of a {type(share_cache_with).__name__}; "
            "allowed is an in-place ONNX Runtime engine"
        )
    return OrtEngine(session, info, cache, entry.prefill_chunk)


def _allocate(entry: EngineEntry, name: str, device: Device) -> dict[str, Any]:
    """Zeroed KV buffers on the device; the system hands out their pages as they fill."""
    from onnxruntime import OrtValue

    dtype = np.float16 if entry.kv_dtype == "float16" else np.float32
    shape = (1, entry.num_kv_heads, entry.max_length, entry.head_size)
    buffers: dict[str, Any] = {}
    try:
        for layer in range(entry.num_layers):
            for part in ("key", "value"):
                zeros = np.zeros(shape, dtype)
                value = OrtValue.ortvalue_from_numpy(zeros, device.kind, device.index)
                buffers[f"{layer}.{part}"] = value
    except Exception as error:  # MemoryError, or whatever the device's allocator raises
        size = 2 * entry.num_layers * int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        raise EngineError(
            f"the {name} engine's KV cache of {entry.max_length} tokens needs {size / 1e9:.1f} GB "
            f"on {device}, which cannot be had; export with a smaller --max-length"
        ) from error
    return buffers
