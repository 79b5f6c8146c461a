"""Keep graphs that ONNX Runtime optimized for this CPU on disk, and map them at later loads.

Loading a graph means folding its constants and packing its weights for the kernels of this CPU:
most of the load time, and memory that every process has to itself. The packed form can be written
to disk. Loaded from there it is mapped: no graph work, and processes share its pages.

The packed form depends on the version of ONNX Runtime and on the CPU. So it is not part of a
package: it is made on the machine that loads it, in a directory that the user names, under a key of
all it depends on. A stamp with the sizes of its files is written last, so an incomplete form, as
after a power cut, is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from specdec.engines.errors import EngineError

__all__ = ["cache_folder", "discard", "mapped_graph", "writing"]

_FORMAT = "1"
"""Changes with what is written, or with the session options it is written under."""
_GRAPH, _STAMP, _PARTIAL = "model.onnx", "complete.json", "partial-"
_GROWTH = 5
"""An FP16 weight becomes four bytes of float32 and four more packed; with some room."""
_STALE_SECONDS = 24 * 3600.0
_CPU_LINES = (
    *("model name", "flags"),
    *("Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part"),
)
"""What /proc/cpuinfo says of a processor, on x86 and on Arm."""


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
    if _is_complete(folder):
        return folder / _GRAPH
    with writing(cache):
        cache.mkdir(parents=True, exist_ok=True)
        _remove_stale(cache)
        shutil.rmtree(folder, ignore_errors=True)
        _check_disk(graph, cache, name)
        with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=cache) as partial:
            made = Path(partial) / "made"
            made.mkdir()
            save(made / _GRAPH)
            _seal(made)
            try:
                made.rename(folder)
            except OSError:  # another process was faster
                if not _is_complete(folder):
                    raise
    return folder / _GRAPH


def cache_folder(cache: Path, content: str) -> Path:
    """Directory of the form for this content, this ONNX Runtime and this CPU."""
    import onnxruntime

    parts = (_FORMAT, content, onnxruntime.__version__, platform.machine(), _cpu())
    return cache / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def discard(mapped: Path) -> None:
    """Drop a result of `mapped_graph` that turned out not to load."""
    shutil.rmtree(mapped.parent, ignore_errors=True)


@contextmanager
def writing(cache: Path) -> Iterator[None]:
    """Turn an `OSError` into the error that the cache cannot be written.

    Raises:
        EngineError: instead of it.
    """
    try:
        yield
    except OSError as error:
        raise EngineError(
            f"the cache {cache} of optimized graphs cannot be written ({error.strerror}); name "
            "another directory, or load without a cache"
        ) from error


def _is_complete(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
        return bool(sizes) and all((folder / n).stat().st_size == s for n, s in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _seal(folder: Path) -> None:
    """Flush all files to the disk, then write the stamp that makes them valid."""
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    (folder / _STAMP).write_text(json.dumps(sizes), encoding="utf-8")
    for name in (*sizes, _STAMP):
        descriptor = os.open(folder / name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove_stale(cache: Path) -> None:
    """Remove what killed processes left behind."""
    for path in cache.glob(f"{_PARTIAL}*"):
        if time.time() - path.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def _check_disk(graph: Path, cache: Path, name: str) -> None:
    stored = sum(path.stat().st_size for path in graph.parent.glob(f"{graph.name}*"))
    free = shutil.disk_usage(cache).free
    if free < _GROWTH * stored:
        raise EngineError(
            f"the optimized {name} engine takes up to {_GROWTH * stored / 1e9:.1f} GB in {cache}, "
            f"which has {free / 1e9:.1f} GB free; free some, or load without a cache"
        )


def _cpu() -> str:
    """The processor's model and features."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor()
    first = info.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    return "\n".join(line for line in first if line.startswith(_CPU_LINES))
