"""Convert a target and a draft model to a package that `specdec.runtime` runs.

The commands and the benchmarks use it; it may use torch, transformers, Optimum, ONNX, the engines
and the runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specdec.export.errors import ExportError
from specdec.export.progress import Progress, SilentProgress

if TYPE_CHECKING:
    from specdec.export.options import ExportOptions
    from specdec.export.pipeline import export_package
    from specdec.export.report import ExportReport
    from specdec.export.simulate.package import SimulatedPair, write_simulated_package

__all__ = [
    "ExportError",
    "ExportOptions",
    "ExportReport",
    "Progress",
    "SilentProgress",
    "SimulatedPair",
    "export_package",
    "write_simulated_package",
]

_WHEELS = {"optimum": "optimum-onnx", "onnx_ir": "onnx-ir", "google": "protobuf"}
_LAZY = {
    "ExportOptions": "options",
    "ExportReport": "report",
    "SimulatedPair": "simulate.package",
    "export_package": "pipeline",
    "write_simulated_package": "simulate.package",
}


def __getattr__(name: str) -> Any:
    """Import torch and Optimum only when the export is really used."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from specdec.engines.errors import MissingDependencyError

    try:
        module = import_module(f"specdec.export.{_LAZY[name]}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("specdec"):
            raise
        package = error.name.partition(".")[0]
        raise MissingDependencyError(
            f"exporting needs {error.name}, which is not installed; run: pip install "
            f"{_WHEELS.get(package, package)} (docs/export.md lists all that an export needs)"
        ) from error
    return getattr(module, name)
