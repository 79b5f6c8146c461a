"""Load an engine file of a package as a `TensorRTEngine`; cheap checks come first.

In this order: the library and its version, the GPU, its compute capability, its free memory;
then the file is read, and the engine's inputs and outputs are compared with the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specdec.engines.cuda_driver import CudaDevice, require_memory
from specdec.engines.devices import Device
from specdec.engines.engine import Engine
from specdec.engines.errors import DeviceError, EngineError
from specdec.engines.in_place import PAST, PRESENT
from specdec.engines.package.build_record import TensorRTEntry
from specdec.engines.package.entries import EngineEntry
from specdec.engines.tensorrt.contexts import RuntimeCache, scratch_bytes
from specdec.engines.tensorrt.engine import DeviceCache, TensorRTEngine, free_cache
from specdec.engines.tensorrt.library import collecting_logger, import_tensorrt

__all__ = ["check_version", "load_tensorrt_engine"]

_KV_TYPES = {"float16": "HALF", "float32": "FLOAT", "bfloat16": "BF16"}


def load_tensorrt_engine(
    path: Path,
    entry: EngineEntry,
    *,
    name: str,
    device: Device,
    share_cache_with: Engine | None = None,
    kernels: Path | None = None,
    open_device: Callable[[int], CudaDevice] = CudaDevice,
) -> TensorRTEngine:
    """Load one engine of a package.

    Args:
        path: the `.engine` file.
        entry: its manifest entry, of a TensorRT backend.
        name: "target" or "draft".
        device: a GPU.
        share_cache_with: read and write this engine's KV cache instead of an own one.
        kernels: file for the kernels that TensorRT-RTX compiles on this machine; None keeps none.
        open_device: opens GPU number N.

    Raises:
        MissingDependencyError: the TensorRT library is not installed.
        DeviceError: the device is no GPU, is not there, has another compute capability, or too
            little free memory.
        EngineError: another TensorRT version built the engine, it cannot be read, or it is not
            what the entry says.
    """
    built = entry.tensorrt
    assert built is not None
    if device.kind != "cuda":
        raise DeviceError(
            f'device {device} cannot run the {name}, a TensorRT engine; allowed is "cuda" or '
            '"cuda:N", or export the package with --backend onnxruntime'
        )
    trt = import_tensorrt(entry.backend)
    check_version(trt, entry, name)
    gpu = open_device(device.index)
    with _released_on_error(gpu):
        _check_capability(gpu, built, name, device)
        own_cache = 0 if share_cache_with is not None else entry.kv_cache_bytes
        needed = path.stat().st_size + own_cache
        require_memory(gpu, needed, f"the {name} engine needs", device)
        engine = _deserialize(trt, path, name)
        _check_interface(trt, engine, entry, name)
        scratch = scratch_bytes(engine, len(built.profiles))
        require_memory(gpu, own_cache + scratch, f"the {name} engine, loaded, needs", device)
        if share_cache_with is None:
            cache = _make_cache(gpu, entry)
        elif isinstance(share_cache_with, TensorRTEngine):
            cache = share_cache_with.cache
        else:
            raise EngineError(
                f"the {name} engine cannot share the cache of a "
                f"{type(share_cache_with).__name__}; allowed is a TensorRT engine"
            )
    info = entry.info(name, device)
    owns = share_cache_with is None
    try:
        made = TensorRTEngine(
            engine,
            info,
            built,
            cache,
            entry.prefill_chunk,
            owns_cache=owns,
            trt=trt,
            kernels=None if kernels is None else RuntimeCache(kernels),
        )
    except BaseException:
        if owns:
            free_cache(cache)
        else:
            gpu.leave()
        raise
    if not owns:
        gpu.leave()  # the cache's owner holds the GPU
    return made


def check_version(trt: Any, entry: EngineEntry, name: str) -> None:
    """Refuse an engine of another TensorRT version, which could not be read or not be trusted.

    Raises:
        EngineError: the versions differ.
    """
    built = entry.tensorrt
    assert built is not None
    if trt.__version__ != built.version:
        raise EngineError(
            f"the {name} engine was built by {trt.__name__} {built.version}, but {trt.__version__} "
            f"is installed; install {entry.backend}=={built.version}, or export the package again"
        )


@contextmanager
def _released_on_error(gpu: CudaDevice) -> Iterator[None]:
    try:
        yield
    except BaseException:
        gpu.leave()
        raise


def _check_capability(gpu: CudaDevice, built: TensorRTEntry, name: str, device: Device) -> None:
    got = gpu.compute_capability
    if got not in built.compute_capabilities:
        raise DeviceError(
            f"{device} has compute capability {got}; the {name} engine was built for "
            f"{', '.join(built.compute_capabilities)}; export with --compute-capability {got}"
        )


def _deserialize(trt: Any, path: Path, name: str) -> Any:
    logger = collecting_logger(trt)
    engine = trt.Runtime(logger).deserialize_cuda_engine(path.read_bytes())
    if engine is None:
        raise EngineError(
            f"{trt.__name__} {trt.__version__} cannot load the {name} engine {path.name}: "
            f"{logger.reason()}"
        )
    return engine


def _check_interface(trt: Any, engine: Any, entry: EngineEntry, name: str) -> None:
    """Compare names, element types and shapes of the engine with the manifest."""
    half_or_float = getattr(trt.DataType, _KV_TYPES[entry.kv_dtype])
    cache = (half_or_float, (1, entry.num_kv_heads, entry.max_length, entry.head_size))
    expected: dict[str, tuple[Any, tuple[int, ...]]] = {
        "input_ids": (trt.DataType.INT64, (1, -1)),
        "seqlens_k": (trt.DataType.INT32, (1,)),
        "logit_rows": (trt.DataType.INT64, (-1,)),
        "logits": (trt.DataType.FLOAT, (1, -1, entry.logits_width)),
    }
    for layer in range(entry.num_layers):
        for part in ("key", "value"):
            expected |= {f"{prefix}{layer}.{part}": cache for prefix in (PAST, PRESENT)}
    found = {
        tensor: (engine.get_tensor_dtype(tensor), tuple(engine.get_tensor_shape(tensor)))
        for tensor in map(engine.get_tensor_name, range(engine.num_io_tensors))
    }
    if "position_ids" in found:
        expected["position_ids"] = (trt.DataType.INT64, (1, -1))
    for tensor in sorted(expected.keys() | found.keys()):
        got, wanted = found.get(tensor), expected.get(tensor)
        if got != wanted:
            raise EngineError(
                f"{tensor} of the {name} engine is {_shown(got)}; its manifest entry says "
                f"{_shown(wanted)}; export the package again"
            )
    profiles = 0 if entry.tensorrt is None else len(entry.tensorrt.profiles)
    if engine.num_optimization_profiles != profiles:
        raise EngineError(
            f"the {name} engine has {engine.num_optimization_profiles} profiles; its manifest "
            f"entry says {profiles}; export the package again"
        )


def _shown(tensor: tuple[Any, tuple[int, ...]] | None) -> str:
    return "absent" if tensor is None else f"{tensor[0].name} {list(tensor[1])}"


def _make_cache(gpu: CudaDevice, entry: EngineEntry) -> DeviceCache:
    size = entry.kv_cache_bytes // (2 * entry.num_layers)
    cache = DeviceCache(gpu, gpu.create_stream(), {})
    try:
        for layer in range(entry.num_layers):
            for part in ("key", "value"):
                cache.buffers[f"{layer}.{part}"] = gpu.allocate(size)
    except BaseException:
        for address in cache.buffers.values():
            gpu.free(address)
        gpu.destroy_stream(cache.stream)
        raise
    return cache
