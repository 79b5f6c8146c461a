"""Load a package for several requests at once: engines with a KV cache for each of them."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike

from specdec.engines.devices import Device
from specdec.engines.engine import Engine
from specdec.engines.errors import EngineError
from specdec.engines.load import LoadedPackage, load_engines, read_package
from specdec.engines.native.library import native_library
from specdec.engines.native.load import why_not_native
from specdec.engines.onnxruntime.concatenated import ConcatenatedEngine
from specdec.engines.onnxruntime.engine import OrtEngine
from specdec.engines.onnxruntime.options import DEFAULT_ORT_OPTIONS, OrtOptions
from specdec.engines.package.reader import Package
from specdec.engines.slots import EngineSlots, SlottedEngine

__all__ = ["load_slotted"]


def load_slotted(
    path: str | PathLike[str],
    num_slots: int,
    *,
    device: str = "cpu",
    draft_device: str | None = None,
    verify_checksums: bool = True,
    num_threads: int | None = None,
    load_draft: bool = True,
    ort: OrtOptions = DEFAULT_ORT_OPTIONS,
) -> tuple[LoadedPackage, SlottedEngine, SlottedEngine | None]:
    """Read a package, verify it, and build its engines with `num_slots` KV caches each.

    Native engines run the rows of all slots in one pass; they are used when target and draft both
    can be native. Engines on plain ONNX Runtime get a cache for each slot over one session, and
    run slot by slot. A draft on the target's cache shares the caches of all slots.

    Returns:
        The package, which closes the engines, and its target and draft with their slots.

    Raises:
        ValueError: `num_slots` is below 1.
        EngineError: the backend has one cache alone, or the memory cannot be had.
        PackageError, DeviceError, MissingDependencyError: as `load_package`.
    """
    if num_slots < 1:
        raise ValueError(f"num_slots is {num_slots}; allowed is 1 or more")
    package = read_package(path, verify_checksums)
    devices = (Device.parse(device), Device.parse(draft_device or device))
    loaded = load_engines(
        package,
        device=devices[0],
        draft_device=devices[1],
        num_threads=num_threads,
        load_draft=load_draft,
        ort=_options(package, devices, load_draft, num_slots, ort),
    )
    try:
        target = _with_slots(loaded.target, num_slots, None)
        if loaded.draft is None:
            return loaded, target, None
        shared = target if loaded.draft_shares_cache else None
        return loaded, target, _with_slots(loaded.draft, num_slots, shared)
    except BaseException:
        loaded.close()
        raise


def _options(
    package: Package,
    devices: tuple[Device, Device],
    load_draft: bool,
    num_slots: int,
    ort: OrtOptions,
) -> OrtOptions:
    """Native engines for all slots where both can be, else plain ones for both."""
    if num_slots == 1 or ort.engine == "onnxruntime":
        return ort
    draft = package.manifest.draft if load_draft else None
    placed = [(package.manifest.target, devices[0])]
    placed += [] if draft is None else [(draft, devices[1])]
    library = native_library()
    if all(why_not_native(entry, place, library) is None for entry, place in placed):
        return replace(ort, num_slots=num_slots)
    return ort if ort.engine == "native" else replace(ort, engine="onnxruntime")


def _with_slots(engine: Engine, num_slots: int, shared: SlottedEngine | None) -> SlottedEngine:
    if isinstance(engine, SlottedEngine) and engine.num_slots == num_slots:
        return engine
    engines: list[Engine] = [engine]
    for slot in range(1, num_slots):
        if isinstance(engine, ConcatenatedEngine):
            engines.append(engine.beside())
        elif isinstance(engine, OrtEngine):
            beside = shared.engines[slot] if isinstance(shared, EngineSlots) else None
            engines.append(engine.beside(beside.cache if isinstance(beside, OrtEngine) else None))
        else:
            raise EngineError(
                f"the {engine.info.name} engine of backend {engine.info.backend!r} holds one "
                f"sequence; num_slots is {num_slots}, allowed is 1"
            )
    return EngineSlots(engines)
