"""Compute the memory of a loaded package from its manifest; read that of this process.

weights   bytes on disk, twice as many where FP16 weights are computed in FP32
KV cache  2 * layers * kv_heads * head_size * bytes per element, for every token of a cache
"""

from __future__ import annotations

import sys
from pathlib import Path

from specdec.engines.native.library import native_library
from specdec.engines.package.manifest import EngineEntry, Manifest
from specdec.runtime.report.contents import ContextMemory, Memory

__all__ = ["bytes_per_pass", "kv_bytes", "package_memory", "peak_memory", "resident_memory"]

_ELEMENT = {"float32": 4, "float16": 2, "bfloat16": 2}
_STATUS = Path("/proc/self/status")


def package_memory(manifest: Manifest, resident: int | None) -> Memory:
    """Compute what target and draft need.

    Args:
        manifest: of the package.
        resident: bytes of this process with the engines loaded, if known.
    """
    target, draft = manifest.target, manifest.draft
    own_cache = draft is not None and not draft.shares_target_cache
    target_weights = loaded_weights(manifest, target)
    draft_weights = 0 if draft is None else loaded_weights(manifest, draft)
    per_token = kv_bytes(target) + (kv_bytes(draft) if own_cache and draft is not None else 0)
    lengths, length = [], 1
    while length < target.max_length:
        lengths.append(length)
        length *= 2
    weights = target_weights + draft_weights
    return Memory(
        target_weights=target_weights,
        draft_weights=draft_weights,
        kv_per_token=per_token,
        capacity=target.max_length,
        by_context=tuple(
            ContextMemory(context=n, bytes=weights + n * per_token)
            for n in [*lengths[4:], target.max_length]
        ),
        resident=resident,
    )


def kv_bytes(entry: EngineEntry) -> int:
    """Bytes of the keys and values of one token."""
    return 2 * entry.num_layers * entry.num_kv_heads * entry.head_size * _ELEMENT[entry.kv_dtype]


def loaded_weights(manifest: Manifest, entry: EngineEntry) -> int:
    """Bytes of an engine's files, as the device holds them."""
    folder = entry.graph.rpartition("/")[0]
    names = [name for name in manifest.files if name.rpartition("/")[0] == folder]
    if not folder:  # engines beside each other: the graph and what its name begins
        stem = entry.graph.removesuffix(".onnx")
        names = [name for name in names if name.startswith(stem)]
    size = sum(manifest.files[name].size for name in names)
    as_stored = entry.native is not None and native_library().path is not None
    widened = entry.storage in ("fp16", "bf16") and entry.compute == "fp32" and not as_stored
    return 2 * size if widened else size


def bytes_per_pass(manifest: Manifest, name: str) -> int:
    """Weights one pass of an engine reads.

    Args:
        manifest: whose export noted it; without a note, all its weights.
        name: "target" or "draft"; a draft that is not there reads nothing.
    """
    entry = manifest.target if name == "target" else manifest.draft
    if entry is None:
        return 0
    noted = manifest.checks.get("weights_read")
    count = noted.get(name) if isinstance(noted, dict) else None
    return count if type(count) is int and count > 0 else loaded_weights(manifest, entry)


def resident_memory() -> int | None:
    """Bytes of physical memory this process uses now; None where Linux does not say."""
    return _status("VmRSS")


def peak_memory() -> int | None:
    """The largest resident memory of this process so far, in bytes; None where unknown."""
    known = _status("VmHWM")
    if known is not None or sys.platform == "win32":
        return known
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit


def _status(name: str) -> int | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None
