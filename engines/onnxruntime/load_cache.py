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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from specdec.engines.errors import EngineError, OutputError, one_line
from specdec.engines.storage.holds import remove
from specdec.engines.storage.writing import (
    fresh_folder,
    is_disk_full,
    left_behind,
    readable_size,
    sync_folder,
    sync_tree,
    write_file,
)

__all__ = ["cache_folder", "discard", "mapped_graph", "writing"]

_FORMAT = "1"
"""Changes with what is written, or with the session options it is written under."""
_GRAPH, _STAMP = "model.onnx", "complete.json"
_MADE, _PARTIAL = "graph", "partial"
_GROWTH = 5
"""An FP16 weight becomes four bytes of float32 and four more packed; with some room."""
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
        for left in left_behind(cache / _MADE, _PARTIAL):
            remove(left)
        remove(folder)
        _check_disk(graph, cache, name)
        made, held = fresh_folder(cache / _MADE, _PARTIAL)
        try:
            save(made / _GRAPH)
            _seal(made)
            try:
                made.rename(folder)
            except OSError:  # another process was faster
                if not _is_complete(folder):
                    raise
            sync_folder(cache)
        finally:
            remove(made)
            os.close(held)
    return folder / _GRAPH


def cache_folder(cache: Path, content: str) -> Path:
    """Directory of the form for this content, this ONNX Runtime and this CPU."""
    import onnxruntime

    parts = (_FORMAT, content, onnxruntime.__version__, platform.machine(), _cpu())
    return cache / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def discard(mapped: Path) -> None:
    """Drop a result of `mapped_graph` that turned out not to load."""
    remove(mapped.parent)


@contextmanager
def writing(cache: Path) -> Iterator[None]:
    """Turn an `OSError` into the error that the cache cannot be written.

    Raises:
        EngineError: instead of it.
    """
    try:
        yield
    except EngineError as error:
        if not is_disk_full(error):
            raise
        free = readable_size(shutil.disk_usage(cache).free)
        raise EngineError(
            f"the disk of the cache {cache} of optimized graphs is full ({free} are free now); "
            "free some, or load without a cache"
        ) from error
    except (OSError, ValueError, OutputError) as error:
        reason = error.strerror if isinstance(error, OSError) else one_line(error)
        raise EngineError(
            f"the cache {cache} of optimized graphs cannot be written ({reason}); name "
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
    sync_tree(folder)
    write_file(folder / _STAMP, json.dumps(sizes))


def _check_disk(graph: Path, cache: Path, name: str) -> None:
    stored = sum(path.stat().st_size for path in graph.parent.glob(f"{graph.name}*"))
    free = shutil.disk_usage(cache).free
    if free < _GROWTH * stored:
        raise EngineError(
            f"the optimized {name} engine takes up to {readable_size(_GROWTH * stored)} in "
            f"{cache}, which has {readable_size(free)} free; free some, or load without a cache"
        )


def _cpu() -> str:
    """The processor's model and features."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor()
    first = info.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    return "\n".join(line for line in first if line.startswith(_CPU_LINES))
