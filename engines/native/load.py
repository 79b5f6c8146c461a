"""Choose between native operators and plain ONNX Runtime, and load an engine over the former."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from specdec.engines.devices import Device
from specdec.engines.engine import Engine
from specdec.engines.errors import EngineError
from specdec.engines.native.engine import NativeEngine
from specdec.engines.native.library import VERSION, NativeLibrary, native_library
from specdec.engines.native.passes import LENGTH_INPUTS
from specdec.engines.onnxruntime.interface import check_interface
from specdec.engines.onnxruntime.load import own_or_shared_cache
from specdec.engines.onnxruntime.options import DEFAULT_ORT_OPTIONS, OrtOptions
from specdec.engines.onnxruntime.session import create_session
from specdec.engines.package.entries import EngineEntry

__all__ = ["choose_library", "engine_here", "load_native_engine", "why_not_native"]


def why_not_native(entry: EngineEntry, device: Device, library: NativeLibrary) -> str | None:
    """Why an engine cannot run over native operators here, in a few words; None when it can."""
    if device.kind != "cpu":
        return f"native operators are for the CPU, and the device is {device}"
    if entry.native is None:
        return "its package has no native graph"
    if library.path is None:
        return library.reason
    if entry.native.operators != VERSION:
        return (
            f"its native graph needs version {entry.native.operators} of the operators, and this "
            f"release has {VERSION}"
        )
    return None


def engine_here(entry: EngineEntry) -> str:
    """What would run an engine of a package on this machine's CPU, and if not native, why."""
    if entry.backend != "onnxruntime":
        return entry.backend
    library = native_library()
    reason = why_not_native(entry, Device("cpu"), library)
    return f"native {library.isa}" if reason is None else f"onnxruntime ({reason})"


def choose_library(
    entry: EngineEntry, name: str, device: Device, options: OrtOptions
) -> NativeLibrary | None:
    """The library to run an engine over, None for plain ONNX Runtime.

    Args:
        entry: the engine's manifest entry.
        name: "target" or "draft", for messages.
        device: where it runs.
        options: of which `engine` is asked.

    Raises:
        EngineError: native operators are demanded and cannot be had.
    """
    if options.engine == "onnxruntime":
        return None
    library = native_library()
    reason = why_not_native(entry, device, library)
    if reason is None:
        return library
    if options.engine == "native":
        raise EngineError(
            f"the {name} engine cannot run over native operators: {reason}; "
            "allowed here is engine auto or onnxruntime"
        )
    return None


def load_native_engine(
    graph: Path,
    entry: EngineEntry,
    library: NativeLibrary,
    *,
    name: str,
    device: Device,
    num_threads: int | None = None,
    share_cache_with: Engine | None = None,
    options: OrtOptions = DEFAULT_ORT_OPTIONS,
) -> NativeEngine:
    """Load one engine of a package over its native graph.

    Args:
        graph: the native graph; it reads the data file beside it.
        entry: its manifest entry.
        library: the installed package's, usable.
        name: "target" or "draft".
        device: a CPU.
        num_threads: None for the default.
        share_cache_with: read and write this engine's KV cache instead of an own one.
        options: `num_slots` and `reduce_logits` count here.

    Raises:
        EngineError: the graph does not load or is not what the entry says.
    """
    session = create_session(
        graph,
        name=name,
        device=device,
        num_threads=num_threads,
        options=options,
        library=library.path,
    )
    check_interface(session, entry, name, LENGTH_INPUTS)
    cache = own_or_shared_cache(entry, name, device, share_cache_with, options.num_slots)
    info = replace(entry.info(name, device), engine=f"native {library.isa}")
    return NativeEngine(session, info, cache, entry.prefill_chunk, options)
