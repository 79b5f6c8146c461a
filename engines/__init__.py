"""One model with its KV cache on one device (`Engine`), and the package it is loaded from.

Everything may use it; it may use NumPy, ONNX Runtime and, once an engine of it is loaded,
TensorRT.
"""

from specdec.engines.devices import Device, available_devices, require_provider
from specdec.engines.engine import Engine, EngineInfo, check_forward
from specdec.engines.errors import (
    ContextOverflowError,
    DeviceError,
    EngineError,
    MissingDependencyError,
    NumericalError,
    OutputError,
    PackageError,
    PackageIntegrityError,
    PackageVersionError,
    SpecdecError,
)
from specdec.engines.load import LoadedPackage, Package, load_package, read_package
from specdec.engines.onnxruntime.options import OrtOptions
from specdec.engines.package.manifest import (
    MANIFEST_NAME,
    SCHEMA_VERSION,
    EngineEntry,
    FileEntry,
    GenerationEntry,
    Manifest,
    TokenizerEntry,
    hash_file,
    inventory,
    write_manifest,
)
from specdec.engines.reduction import ReducedRow, ReducingEngine, Reduction

__all__ = [
    "MANIFEST_NAME",
    "SCHEMA_VERSION",
    "ContextOverflowError",
    "Device",
    "DeviceError",
    "Engine",
    "EngineEntry",
    "EngineError",
    "EngineInfo",
    "FileEntry",
    "GenerationEntry",
    "LoadedPackage",
    "Manifest",
    "MissingDependencyError",
    "NumericalError",
    "OrtOptions",
    "OutputError",
    "Package",
    "PackageError",
    "PackageIntegrityError",
    "PackageVersionError",
    "ReducedRow",
    "ReducingEngine",
    "Reduction",
    "SpecdecError",
    "TokenizerEntry",
    "available_devices",
    "check_forward",
    "hash_file",
    "inventory",
    "load_package",
    "read_package",
    "require_provider",
    "write_manifest",
]
