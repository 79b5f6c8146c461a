"""Make an engine's execution contexts, one a profile, on one scratch buffer and one kernel cache.

A context that allocates for itself has scratch memory of its own, which no check counts. The passes
of an engine follow each other on one stream, so its contexts use one buffer.

TensorRT-RTX compiles kernels on the user's machine. Narrow profiles (steps and verification)
compile for every shape they meet at once, as the shapes are few, and replay the whole pass as a
CUDA graph; its default compiles in the background, and times measured meanwhile would mislead the
choice of a draft length. The profile for prompts, whose lengths differ, keeps to kernels for any
shape. What is compiled is kept in a file, if one is named.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.engines.errors import OutputError
from specdec.engines.storage.writing import write_file

__all__ = ["NARROW", "RuntimeCache", "make_context", "scratch_bytes"]

NARROW = 33
"""Most rows of a profile for steps and verification."""

_log = logging.getLogger(__name__)


def scratch_bytes(engine: Any, num_profiles: int) -> int:
    """Bytes of device memory that any context of an engine needs for its passes."""
    return max(
        int(engine.get_device_memory_size_for_profile_v2(index)) for index in range(num_profiles)
    )


@dataclass
class RuntimeCache:
    """Kernels that TensorRT-RTX compiled here, kept between loads.

    Attributes:
        path: the file; it may not exist.
    """

    path: Path
    _cache: Any = None
    _size: int = 0

    def attach(self, config: Any, name: str) -> None:
        """Let contexts of `config` use and fill the cache; its file is read once.

        Args:
            config: a TensorRT-RTX `IRuntimeConfig`.
            name: "target" or "draft", for messages.
        """
        if self._cache is None:
            self._cache = config.create_runtime_cache()
            if self.path.is_file():
                blob = self.path.read_bytes()
                self._size = len(blob)
                if not self._cache.deserialize(blob):
                    self._size = 0
                    _log.warning(
                        "kernels kept for the %s in %s are of another GPU, driver or library; "
                        "they are compiled again",
                        name,
                        self.path,
                    )
        if not config.set_runtime_cache(self._cache):
            raise RuntimeError("TensorRT-RTX refuses its runtime cache")

    def save(self) -> None:
        """Write the file if more was compiled since it was read; warn where that cannot be."""
        if self._cache is None:
            return
        blob = bytes(memoryview(self._cache.serialize()))
        if len(blob) != self._size:
            try:
                write_file(self.path, blob)
            except (
                OSError,
                OutputError,
            ) as error:  # the next load compiles again
                _log.warning("cannot keep compiled kernels in %s: %s", self.path, error)
                return
            self._size = len(blob)


def make_context(
    trt: Any, engine: Any, highest: int, cache: RuntimeCache | None, name: str
) -> Any | None:
    """A context that is given its scratch memory; None where TensorRT cannot make one.

    Args:
        trt: the library's module.
        engine: an `ICudaEngine`.
        highest: most rows of the profile that the context is for.
        cache: of compiled kernels; TensorRT-RTX alone has one.
        name: "target" or "draft", for messages.
    """
    managed = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    if not hasattr(trt, "IRuntimeCache"):  # tensorrt proper compiles when it builds
        return engine.create_execution_context(managed)
    narrow = highest <= NARROW
    config = engine.create_runtime_config()
    config.set_execution_context_allocation_strategy(managed)
    special = trt.DynamicShapesKernelSpecializationStrategy
    config.dynamic_shapes_kernel_specialization_strategy = special.EAGER if narrow else special.NONE
    graphs = trt.CudaGraphStrategy
    config.cuda_graph_strategy = graphs.WHOLE_GRAPH_CAPTURE if narrow else graphs.DISABLED
    if cache is not None:
        cache.attach(config, name)
    return engine.create_execution_context(config)
