"""Device-specific calls of the GPU check, in one place.

Everything else is written as if for any device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specdec.engines import Device, LoadedPackage, load_package
from specdec.engines.cuda_driver import visiting
from specdec.engines.onnxruntime.engine import OrtEngine
from specdec.engines.onnxruntime.options import OrtOptions

__all__ = ["bytes_moved", "export_options", "free_memory", "load"]


def export_options(kind: str) -> dict[str, Any]:
    """Options of `ExportOptions` and `SimulatedPair` for "cpu" or "cuda"."""
    return {"device": kind}


def load(path: Path, device: str, num_threads: int | None = 1, **ort: Any) -> LoadedPackage:
    """Load a package that this check has built; without CUDA graphs unless `ort` says otherwise.

    A section that fails then says nothing of captured passes, which have a section of their own.

    Args:
        path: its directory.
        device: where both engines run.
        num_threads: of engines on the CPU: one suits tiny models best.
        ort: options of `OrtOptions`.
    """
    return load_package(
        path,
        device=device,
        num_threads=num_threads,
        verify_checksums=False,
        ort=OrtOptions(**{"cuda_graphs": False, **ort}),
    )


def bytes_moved(*engines: Any) -> int:
    """Bytes that the engines have moved between host and device so far."""
    return sum(engine.bytes_moved for engine in engines if isinstance(engine, OrtEngine))


def free_memory(device: str) -> int | None:
    """Free bytes of a GPU; None for the CPU, which is not asked."""
    place = Device.parse(device)
    if place.kind == "cpu":
        return None
    with visiting(place.index) as gpu:
        return gpu.memory()[0]
