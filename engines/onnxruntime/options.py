"""How ONNX Runtime engines run, beyond the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path

from specdec.engines.devices import Device
from specdec.engines.errors import EngineError
from specdec.engines.package.entries import EngineEntry

__all__ = ["DEFAULT_ORT_OPTIONS", "ENGINES", "MAX_THREADS", "OrtOptions", "check_applies"]

ENGINES = ("auto", "native", "onnxruntime")
"""What may run a CPU engine."""
MAX_THREADS = 1024
"""Most CPU threads of an engine."""
_MOST_SLOTS = 1024


def _check_type(name: str, value: object, wanted: type, allowed: str) -> None:
    if type(value) is not wanted:
        raise EngineError(f"{name} is {value!r}; allowed is {allowed}")


@dataclass(frozen=True)
class OrtOptions:
    """Options of engines on ONNX Runtime; for other backends they are errors.

    Raises:
        EngineError: a value is not allowed; the message says which are.
    """

    cuda_graphs: bool = False
    """Capture the passes of a few rows as CUDA graphs and replay them: no launch of single
    kernels. Needs a graph that runs on the GPU in its entirety."""
    gpu_memory_limit: int | None = None
    """Bytes of an engine's arena on the GPU, which serves what its nodes compute; weights, KV
    cache and logits lie outside it. None for no limit."""
    allow_cpu_fallback: bool = False
    """Run on a GPU even when some matrix products or attention nodes would run on the CPU."""
    reduce_logits: bool | None = None
    """Reduce logits on the engine's device: always, never, or (None) where it pays: on a GPU
    always, on the CPU for choices that need the mass of a row."""
    huge_pages: bool = True
    """Move the weights of engines on the CPU to huge pages, where the system has them, which makes
    passes faster; it happens in the background after a load. Not for what `load_cache` maps."""
    engine: str = "auto"
    """Engines on the CPU: "native" operators, plain "onnxruntime", or "auto", which is native where
    the package has such graphs and the installed library runs on this CPU."""
    num_slots: int = 1
    """Sequences with a KV cache of their own in each engine; more than 1 needs native engines."""
    load_cache: Path | None = None
    """Directory for what the first load makes and later ones need not: for the CPU, graphs as ONNX
    Runtime optimized them, which are mapped, in about half the time, their pages shared between
    processes; for TensorRT's provider, its engines. Needs verified checksums."""

    allow_operators: tuple[str, ...] = ()
    """Operators that the package's graphs may hold beside those that exports write, such as
    ("Loop", "com.microsoft.Sampling"); see `engines.package.operators`."""

    def __post_init__(self) -> None:
        _check_type("cuda_graphs", self.cuda_graphs, bool, "True or False")
        _check_type("allow_cpu_fallback", self.allow_cpu_fallback, bool, "True or False")
        _check_type("huge_pages", self.huge_pages, bool, "True or False")
        if self.reduce_logits is not None:
            _check_type("reduce_logits", self.reduce_logits, bool, "None, True or False")
        if self.engine not in ENGINES:
            raise EngineError(f"engine is {self.engine!r}; allowed is {', '.join(ENGINES)}")
        if type(self.num_slots) is not int or not 1 <= self.num_slots <= _MOST_SLOTS:
            raise EngineError(f"num_slots is {self.num_slots!r}; allowed is 1 .. {_MOST_SLOTS}")
        names = self.allow_operators
        if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) and n for n in names):
            raise EngineError(
                f"allow_operators is {names!r}; allowed is a list of operators' names, such as "
                '["Loop"]'
            )
        object.__setattr__(self, "allow_operators", tuple(names))
        limit = self.gpu_memory_limit
        if limit is not None and (type(limit) is not int or limit < 1):
            raise EngineError(
                f"gpu_memory_limit is {limit!r}; allowed is None or a number of bytes above 0"
            )
        if self.load_cache is not None:
            is_path = isinstance(self.load_cache, (str, PathLike))
            if not is_path or not str(self.load_cache) or "\0" in str(self.load_cache):
                raise EngineError(
                    f"load_cache is {self.load_cache!r}; allowed is None or a path without NUL"
                )
            object.__setattr__(self, "load_cache", Path(self.load_cache))


DEFAULT_ORT_OPTIONS = OrtOptions()


def check_applies(
    options: OrtOptions, engines: Sequence[tuple[EngineEntry, Device]], *, is_hashed: bool
) -> None:
    """Refuse options that none of a package's engines can honour.

    Args:
        options: as asked for.
        engines: manifest entry and device of each engine that will be loaded.
        is_hashed: whether the package's checksums were compared.

    Raises:
        EngineError: an option has no engine to apply to.
    """
    kinds = {(entry.backend, device.kind) for entry, device in engines}
    cuda, tensorrt = ("onnxruntime", "cuda"), ("onnxruntime-tensorrt", "cuda")
    on_gpu = kinds & {cuda, tensorrt}
    on_cpu = kinds & {("onnxruntime", "cpu"), ("onnxruntime-tensorrt", "cpu")}
    in_place = any(entry.layout == "in_place" for entry, _ in engines)
    applies = {
        "cuda_graphs": (cuda in kinds, "an engine of backend onnxruntime on a GPU"),
        "gpu_memory_limit": (cuda in kinds, "an engine of backend onnxruntime on a GPU"),
        "allow_cpu_fallback": (on_gpu, "an engine of ONNX Runtime on a GPU"),
        "reduce_logits": ((on_gpu or on_cpu) and in_place, "an in-place engine of ONNX Runtime"),
        "allow_operators": (on_gpu or on_cpu, "an engine of ONNX Runtime"),
        "huge_pages": (on_cpu, "an engine on the CPU"),
        "engine": (on_cpu, "an engine on the CPU"),
        "num_slots": (on_cpu and in_place, "an in-place engine on the CPU"),
        "load_cache": (on_cpu or tensorrt in kinds, "an engine on the CPU or for TensorRT"),
    }
    for field in fields(options):
        value = getattr(options, field.name)
        possible, needs = applies[field.name]
        if value != field.default and not possible:
            found = ", ".join(f"{backend} on {kind}" for backend, kind in sorted(kinds))
            raise EngineError(
                f"{field.name} is {value} and needs {needs}; the package has {found}: leave it out"
            )
    if options.load_cache is not None and not is_hashed:
        raise EngineError(
            f"load_cache is {options.load_cache} and the package's checksums are not verified, by "
            "which what is kept is known: verify them, or leave it out"
        )
