"""Options of an export, validated when constructed."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from specdec.export.errors import ExportOptionError
from specdec.export.weights.recipes import Recipe, find_recipe

__all__ = ["ExportOptions"]

_TARGET_PRECISIONS = ("fp16", "fp32")
_BUILT = ("tensorrt", "tensorrt-rtx")
_BACKENDS = ("onnxruntime", "onnxruntime-tensorrt", *_BUILT)
_DEVICES = ("cpu", "cuda")
_MIN_LENGTH = 16
_KINDS: dict[str, tuple[Any, str]] = {
    "str": (str, "a string"),
    "bool": (bool, "True or False"),
    "int": (int, "an integer"),
    "float": ((int, float), "a number"),
    "Path": ((str, PathLike), "a path"),
    "tuple[str, ...]": ((tuple, list), "a tuple of strings"),
}
"""Annotation of a field -> what its value must be an instance of, and that in words."""
_REPORTS = ("none", "short", "full")


@dataclass(frozen=True)
class ExportOptions:
    """Options of `export_package`.

    Raises:
        ExportOptionError: a value is not allowed; the message says which are.
    """

    target: str
    """Hub id, Hugging Face folder, `.gguf` file, or "demo"."""
    draft: str
    """As `target`, or "self" (the target's weights, quantized), or "none"."""
    out: Path
    """Directory to create."""
    target_precision: str = "fp16"
    """"fp16" (computed in float32 on a CPU) or, for a CPU, "fp32"."""
    draft_precision: str = "int8"
    """A recipe name of `specdec.export.weights.recipes`, or "int8" or "int4", or "auto": the recipe
    that measures fastest here."""
    backend: str = "onnxruntime"
    """"onnxruntime", "onnxruntime-tensorrt" (built when it is loaded), "tensorrt" (built for the
    GPU of this machine) or "tensorrt-rtx"."""
    device: str = "cpu"
    """What ONNX Runtime's engines are made for: "cpu", or "cuda" (FP16 arithmetic and KV cache).
    TensorRT's are always for a GPU."""
    compute_capabilities: tuple[str, ...] = ()
    """GPUs that a "tensorrt-rtx" engine is built for, such as ("8.6", "8.9")."""
    timing_cache: Path | None = None
    """File of measured kernel times that "tensorrt" builds read and extend."""
    calibration: Path | None = None
    """Texts that the ranges of a draft's activations are found on; None for our own."""
    max_length: int | None = None
    """KV cache capacity in tokens; None for the smaller of the models' contexts and 4096."""
    force: bool = False
    """Write the package even when its checks fail."""
    overwrite: bool = False
    """Replace an existing package at `out`."""
    trust_remote_code: bool = False
    """Run model code that comes with the source."""
    num_threads: int | None = None
    """CPU threads of the engines during the checks."""
    report: Literal["none", "short", "full"] = "short"
    """How much to measure at the end: nothing, about half a minute, or some minutes (times are of
    a plain step of 25 ms)."""
    require_speedup: float | None = None
    """Fail when the pair measures slower than this many times plain decoding."""

    def __post_init__(self) -> None:
        self._check_types()
        if self.target_precision not in _TARGET_PRECISIONS:
            raise ExportOptionError(
                f"target precision {self.target_precision!r} is not known; "
                f"allowed are {', '.join(_TARGET_PRECISIONS)}"
            )
        if self.backend not in _BACKENDS:
            raise ExportOptionError(
                f"backend {self.backend!r} cannot be exported by this release; "
                f"allowed are {', '.join(_BACKENDS)}"
            )
        if self.device not in _DEVICES:
            raise ExportOptionError(
                f"device {self.device!r} is no kind of device that packages are made for; allowed "
                f"are {', '.join(_DEVICES)}"
            )
        self._check_build_options()
        if self.max_length is not None and self.max_length < _MIN_LENGTH:
            raise ExportOptionError(
                f"max_length is {self.max_length}; allowed is at least {_MIN_LENGTH}"
            )
        if self.num_threads is not None and self.num_threads < 1:
            raise ExportOptionError(f"num_threads is {self.num_threads}; allowed is at least 1")
        if self.target in ("self", "none"):
            raise ExportOptionError(
                f"target is {self.target!r}; allowed is a hub id, a folder, a .gguf file or demo"
            )
        self.recipe(self.target_precision)
        if self.draft_precision != "auto" or self.is_tensorrt:
            self.recipe(self.draft_precision)
        self._check_calibration()
        self._check_report()

    def recipe(self, name: str) -> Recipe:
        """The recipe called `name` for this backend and device; errors as `find_recipe`."""
        return find_recipe(name, self.backend, self.device)

    @property
    def is_calibrated(self) -> bool:
        """Whether a draft is made whose activations are quantized too."""
        if self.draft == "none" or self.draft_precision == "auto":
            return False
        return self.recipe(self.draft_precision).calibrated

    @property
    def is_tensorrt(self) -> bool:
        """Whether the engines are built by TensorRT."""
        return self.backend != "onnxruntime"

    @property
    def builds_engines(self) -> bool:
        """Whether the export ends with building them: `onnxruntime-tensorrt` builds at load."""
        return self.backend in _BUILT

    @property
    def is_for_gpu(self) -> bool:
        """Whether a GPU is to run the engines."""
        return self.is_tensorrt or self.device == "cuda"

    def _check_types(self) -> None:
        """Refuse what later checks would compare or convert, with an error of their own."""
        for item in fields(self):
            value, kind = getattr(self, item.name), str(item.type)
            if value is None and kind.endswith("| None"):
                continue
            wanted, allowed = _KINDS.get(kind.removesuffix(" | None"), (object, ""))
            is_flag = isinstance(value, bool) and wanted is not bool
            if not isinstance(value, wanted) or (is_flag and wanted is not object):
                raise ExportOptionError(f"{item.name} is {value!r}; allowed is {allowed}")
            if kind.startswith("Path"):
                object.__setattr__(self, item.name, Path(value))

    def _check_build_options(self) -> None:
        if self.is_tensorrt and self.device != "cpu":
            raise ExportOptionError(
                f"device is {self.device!r} and backend is {self.backend!r}, whose engines are "
                "always for a GPU: leave it out"
            )
        given = {"compute_capabilities": self.compute_capabilities}
        given["timing_cache"] = (str(self.timing_cache),) if self.timing_cache else ()
        for name, value in given.items():
            if value and not self.builds_engines:
                raise ExportOptionError(
                    f"{name} is {', '.join(value)} and backend is {self.backend!r}; it belongs to "
                    f"{' and '.join(_BUILT)}: leave it out, or choose one"
                )
        if self.backend == "tensorrt" and self.compute_capabilities:
            raise ExportOptionError(
                f"compute_capabilities is {', '.join(self.compute_capabilities)}; tensorrt builds "
                "for the GPU of this machine: leave it out, or use tensorrt-rtx"
            )
        if self.backend == "tensorrt-rtx" and self.timing_cache:
            raise ExportOptionError(
                f"timing_cache is {self.timing_cache}; tensorrt-rtx measures no kernels while it "
                "builds: leave it out"
            )
        if self.backend == "tensorrt-rtx" and not self.compute_capabilities:
            raise ExportOptionError(
                "tensorrt-rtx builds for GPUs elsewhere: name their compute capabilities, such as "
                "8.6 or 8.9 (--compute-capability)"
            )

    def _check_calibration(self) -> None:
        if self.calibration is None or self.is_calibrated:
            return
        given = "draft none" if self.draft == "none" else f"draft precision {self.draft_precision}"
        raise ExportOptionError(
            f"calibration is {self.calibration} with {given}, which needs none; leave it out, or "
            "choose --draft-precision int8-qdq and a TensorRT backend"
        )

    def _check_report(self) -> None:
        if self.report not in _REPORTS:
            raise ExportOptionError(f"report is {self.report!r}; allowed are {', '.join(_REPORTS)}")
        required = self.require_speedup
        if required is None:
            return
        if self.is_tensorrt:
            raise ExportOptionError(
                f"require_speedup is {required:g} and backend is {self.backend!r}, whose engines "
                "are not run by the export; leave it out"
            )
        if not (math.isfinite(required) and required > 0.0):
            raise ExportOptionError(f"require_speedup is {required}; allowed is a number above 0")
        if self.report == "none" or self.draft == "none":
            given = "report none" if self.report == "none" else "draft none"
            raise ExportOptionError(
                f"require_speedup is {required:g} with {given}, which measures no pair; "
                "leave one out"
            )
