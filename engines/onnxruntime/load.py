"""Load an engine of a package that ONNX Runtime runs."""

from __future__ import annotations

import ctypes
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from specdec.engines.devices import Device
from specdec.engines.engine import Engine
from specdec.engines.errors import EngineError
from specdec.engines.onnxruntime.engine import KVCache, OrtEngine
from specdec.engines.onnxruntime.gpu import TensorRTPlan
from specdec.engines.onnxruntime.interface import check_interface
from specdec.engines.onnxruntime.load_cache import cache_folder, writing
from specdec.engines.onnxruntime.options import DEFAULT_ORT_OPTIONS, OrtOptions
from specdec.engines.onnxruntime.session import create_session
from specdec.engines.package.entries import EngineEntry
from specdec.engines.package.external_data import graph_inputs

__all__ = ["load_ort_engine", "own_or_shared_cache"]

_VERIFY_ROWS = 33
"""Most rows of a verification."""
_KV_DTYPES = ("float32", "float16")


def load_ort_engine(
    graph: Path,
    entry: EngineEntry,
    *,
    name: str,
    device: Device,
    num_threads: int | None = None,
    share_cache_with: Engine | None = None,
    options: OrtOptions = DEFAULT_ORT_OPTIONS,
    content: str | None = None,
) -> Engine:
    """Load one engine of a package.

    Args:
        graph: the `.onnx` file.
        entry: its manifest entry.
        name: "target" or "draft".
        device: where to run.
        num_threads: CPU threads, None for the default.
        share_cache_with: read and write this engine's KV cache instead of an own one.
        options: how ONNX Runtime runs it.
        content: identifies the graph and its weights in `options.load_cache`.

    Raises:
        EngineError: the graph does not load, is not what the entry says, or cannot run as the
            options ask.
        MissingDependencyError, DeviceError: see `create_session`.
    """
    if entry.kv_dtype not in _KV_DTYPES:
        raise EngineError(
            f"the {name} engine's kv_dtype is {entry.kv_dtype!r}; ONNX Runtime engines have "
            f"{' or '.join(_KV_DTYPES)}; export the package again"
        )
    if options.num_slots > 1:
        raise EngineError(
            f"num_slots is {options.num_slots}, and the {name} engine runs on plain ONNX Runtime, "
            "which takes the rows of one sequence a pass; load with num_slots 1"
        )
    if options.cuda_graphs and device.kind == "cuda" and entry.layout != "in_place":
        raise EngineError(
            f"CUDA graphs need fixed buffers, and the {name} engine's layout is {entry.layout!r}; "
            "load without cuda_graphs"
        )
    plan = None
    if entry.backend == "onnxruntime-tensorrt" and device.kind == "cuda":
        options = replace(options, cuda_graphs=False)  # TensorRT's provider has none of these
        plan = _tensorrt_plan(graph, entry, options, content)
        plan.warn(name)
    session = create_session(
        graph,
        name=name,
        device=device,
        num_threads=num_threads,
        options=options,
        content=content,
        tensorrt=plan,
    )
    if entry.native is not None:
        _return_freed_memory()
    info = replace(entry.info(name, device), engine="onnxruntime")
    check_interface(session, entry, name)
    if entry.layout == "concatenated":
        from specdec.engines.onnxruntime.concatenated import ConcatenatedEngine

        return ConcatenatedEngine(session, info, entry.prefill_chunk)
    cache = own_or_shared_cache(entry, name, device, share_cache_with)
    return OrtEngine(session, info, cache, entry.prefill_chunk, options)


def _return_freed_memory() -> None:
    """Give the system what folding panels back to matrices has used, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def own_or_shared_cache(
    entry: EngineEntry, name: str, device: Device, share_cache_with: Engine | None, slots: int = 1
) -> KVCache:
    """A new KV cache, or that of `share_cache_with`.

    Raises:
        EngineError: there is no memory for it, or the other engine's cache cannot be shared.
    """
    if share_cache_with is None:
        return KVCache(_allocate(entry, name, device, slots), device, [0] * slots)
    if not isinstance(share_cache_with, OrtEngine):
        raise EngineError(
            f"the {name} engine cannot share the cache of a {type(share_cache_with).__name__}; "
            "allowed is an in-place ONNX Runtime engine"
        )
    cache = share_cache_with.cache
    if len(cache.lengths) != slots:
        raise EngineError(
            f"the {name} engine has {slots} slots and cannot share a cache of "
            f"{len(cache.lengths)}; num_slots above 1 needs a native target and a native draft"
        )
    return cache


def _tensorrt_plan(
    graph: Path, entry: EngineEntry, options: OrtOptions, content: str | None
) -> TensorRTPlan:
    cache = None
    if options.load_cache is not None and content is not None:
        cache = cache_folder(options.load_cache, f"tensorrt {content}")
        with writing(options.load_cache):
            cache.mkdir(parents=True, exist_ok=True)
    most = max(entry.prefill_chunk, min(_VERIFY_ROWS, entry.max_length))
    return TensorRTPlan(graph_inputs(graph), most, cache)


def _allocate(entry: EngineEntry, name: str, device: Device, slots: int) -> dict[str, Any]:
    """Zeroed KV buffers on the device; on the CPU the system hands out pages as they fill."""
    from onnxruntime import OrtValue

    shape = (slots, entry.num_kv_heads, entry.max_length, entry.head_size)
    buffers: dict[str, Any] = {}
    try:
        for layer in range(entry.num_layers):
            for part in ("key", "value"):
                zeros = np.zeros(shape, entry.kv_dtype)
                value = OrtValue.ortvalue_from_numpy(zeros, device.kind, device.index)
                buffers[f"{layer}.{part}"] = value
    except Exception as error:  # MemoryError, or whatever the device's allocator raises
        raise EngineError(
            f"the {name} engine's KV cache of {entry.max_length} tokens needs "
            f"{slots * entry.kv_cache_bytes / 1e9:.1f} GB on {device}, which cannot be had; "
            "export with a smaller --max-length"
        ) from error
    return buffers
