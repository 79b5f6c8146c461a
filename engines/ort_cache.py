"""Graphs as ONNX Runtime optimized them for this CPU, kept on disk and mapped at the next load.

Loading a graph means folding its constants and packing its weights for the kernels of this CPU:
most of the load time, and memory that every process has to itself. The packed form can be written
to disk. Loaded from there it is mapped: no graph work, and processes share its pages.

It belongs to one ONNX Runtime and one kind of CPU. So it is no part of a package; it is made on
the machine that loads it, in a directory that the user names, under a key of all it depends on.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from specdec.engines.errors import EngineError

__all__ = ["cache_folder", "mapped_graph"]

_GRAPH = "model.onnx"
_GROWTH = 5
"""An FP16 weight becomes four bytes of float32 and four more packed; with some room."""


def mapped_graph(
    graph: Path, cache: Path, content: str, save: Callable[[Path], None], name: str
) -> Path:
    """The optimized form of a graph, made now when the cache does not hold it.

    Args:
        graph: the `.onnx` file of a package.
        cache: directory of the cache; created when missing.
        content: identifies the graph and its weights.
        save: writes the optimized graph to a path, its weights beside it.
        name: "target" or "draft", for messages.

    Raises:
        EngineError: the cache cannot be written, or its disk is too full.
    """
    folder = cache_folder(cache, content)
    if (folder / _GRAPH).is_file():
        return folder / _GRAPH
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _check_disk(graph, cache, name)
        with tempfile.TemporaryDirectory(prefix="partial-", dir=cache) as partial:
            made = Path(partial) / "made"
            made.mkdir()
            save(made / _GRAPH)
            try:
                made.rename(folder)
            except OSError:  # another process was faster
                if not (folder / _GRAPH).is_file():
                    raise
    except OSError as error:
        raise EngineError(
            f"the cache {cache} of optimized graphs cannot be written ({error.strerror}); name "
            "another directory, or load without a cache"
        ) from error
    return folder / _GRAPH


def cache_folder(cache: Path, content: str) -> Path:
    """Where a cache keeps what belongs to this graph, this ONNX Runtime and this CPU."""
    return cache / _key(content)


def _check_disk(graph: Path, cache: Path, name: str) -> None:
    stored = sum(path.stat().st_size for path in graph.parent.glob(f"{graph.name}*"))
    free = shutil.disk_usage(cache).free
    if free < _GROWTH * stored:
        raise EngineError(
            f"the optimized {name} engine takes up to {_GROWTH * stored / 1e9:.1f} GB in {cache}, "
            f"which has {free / 1e9:.1f} GB free; free some, or load without a cache"
        )


def _key(content: str) -> str:
    """Of the weights, of the library, and of the CPU, whose kernels decide how weights lie."""
    import onnxruntime

    parts = (content, onnxruntime.__version__, platform.machine(), _cpu())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _cpu() -> str:
    """The processor's model and features."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    lines = info.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    return "\n".join(line for line in lines if line.startswith(wanted)) or os.uname().machine
