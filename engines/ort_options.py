"""How ONNX Runtime engines run, beyond the device."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from specdec.engines.errors import EngineError

__all__ = ["DEFAULT_ORT_OPTIONS", "OrtOptions"]


@dataclass(frozen=True)
class OrtOptions:
    """Options of engines on ONNX Runtime; other backends have no use for them.

    Raises:
        EngineError: `gpu_memory_limit` is below 1, or `load_cache` is no path.
    """

    cuda_graphs: bool = False
    """Capture the passes of a few rows as CUDA graphs and replay them: no launch of single
    kernels. Needs a graph that runs on the GPU in its entirety. Without a GPU it is refused."""
    gpu_memory_limit: int | None = None
    """Bytes that an engine's arena may take on the GPU beside its KV cache; None for no limit."""
    allow_cpu_fallback: bool = False
    """Run on a GPU even when some matrix products or attention nodes would run on the CPU."""
    reduce_logits: bool | None = None
    """Reduce logits on the engine's device: always, never, or (None) where it pays: on a GPU
    always, on the CPU for choices that need the mass of a row."""

    load_cache: Path | None = None
    """Directory for graphs as ONNX Runtime optimized them for this CPU: the first load fills it,
    later ones map it, in about half the time, and processes share its pages. On a GPU unused."""

    def __post_init__(self) -> None:
        limit = self.gpu_memory_limit
        if limit is not None and (type(limit) is not int or limit < 1):
            raise EngineError(
                f"gpu_memory_limit is {limit!r}; allowed is None or a number of bytes above 0"
            )
        if self.load_cache is not None:
            if not isinstance(self.load_cache, (str, PathLike)):
                raise EngineError(f"load_cache is {self.load_cache!r}; allowed is None or a path")
            object.__setattr__(self, "load_cache", Path(self.load_cache))


DEFAULT_ORT_OPTIONS = OrtOptions()
