"""Load a package: verify the directory, then build its engines on their devices."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from specdec.engines.devices import Device, require_provider
from specdec.engines.engine import Engine
from specdec.engines.errors import EngineError
from specdec.engines.loaded import LoadedPackage
from specdec.engines.onnxruntime.memory import Need, check_gpu_memory
from specdec.engines.onnxruntime.options import DEFAULT_ORT_OPTIONS, OrtOptions, check_applies
from specdec.engines.package.manifest import EngineEntry
from specdec.engines.package.operators import check_operators
from specdec.engines.package.reader import Package, read_package
from specdec.engines.package.strict_json import shown

__all__ = [
    "LoadedPackage",
    "Package",
    "load_engine",
    "load_engines",
    "load_package",
    "read_package",
]

_TENSORRT = ("tensorrt", "tensorrt-rtx")
_BACKENDS = ("onnxruntime", "onnxruntime-tensorrt", *_TENSORRT)


def load_package(
    path: str | os.PathLike[str],
    *,
    device: str | Device = "cpu",
    draft_device: str | Device | None = None,
    verify_checksums: bool = True,
    num_threads: int | None = None,
    load_draft: bool = True,
    ort: OrtOptions = DEFAULT_ORT_OPTIONS,
) -> LoadedPackage:
    """Read a package, verify it, and build its engines.

    Args:
        path: the package directory.
        device: where the target runs: "cpu", "cuda" or "cuda:N".
        draft_device: where the draft runs; None for the target's device. On another device a
            draft made to share the target's cache keeps its own.
        verify_checksums: hash every file first; see `read_package`.
        num_threads: CPU threads of each engine, 1 or more; None leaves the choice to it.
        load_draft: False builds the target alone.
        ort: how engines on ONNX Runtime run.

    Raises:
        PackageError: as `read_package`.
        DeviceError: a device is not understood, not on this machine, or too small.
        MissingDependencyError: ONNX Runtime, or its build for the device, is not installed.
        EngineError: the backend is not of this release, `num_threads` is below 1, or an engine
            cannot be built; what was built before is closed.
    """
    target_device = Device.parse(device)
    other_device = target_device if draft_device is None else Device.parse(draft_device)
    return load_engines(
        read_package(path, verify_checksums),
        device=target_device,
        draft_device=other_device,
        num_threads=num_threads,
        load_draft=load_draft,
        ort=ort,
    )


def load_engines(
    package: Package,
    *,
    device: str | Device = "cpu",
    draft_device: str | Device | None = None,
    num_threads: int | None = None,
    load_draft: bool = True,
    ort: OrtOptions = DEFAULT_ORT_OPTIONS,
) -> LoadedPackage:
    """Build the engines of a package that is known to be sound.

    `specdec-export` checks its engines so before it writes a manifest; all others want
    `load_package`. Arguments and errors are those of `load_package`; `PackageError` only for an
    operator that is not allowed.
    """
    target_device = Device.parse(device)
    other_device = target_device if draft_device is None else Device.parse(draft_device)
    target_entry = package.manifest.target
    draft_entry = package.manifest.draft if load_draft else None
    _check_runnable("target", target_entry, target_device)
    if draft_entry is not None:
        _check_runnable("draft", draft_entry, other_device)

    shares = (
        draft_entry is not None
        and draft_entry.shares_target_cache
        and other_device == target_device
    )
    placed = [(target_entry, target_device)]
    placed += [] if draft_entry is None else [(draft_entry, other_device)]
    check_applies(ort, placed, is_hashed=package.is_hashed)
    needs = [Need("target", package.target_graph, target_entry, target_device)]
    if draft_entry is not None:
        graph = package.files[draft_entry.graph]
        needs.append(Need("draft", graph, draft_entry, other_device, own_cache=not shares))
    check_gpu_memory(needs)
    for entry in filter(None, (target_entry, draft_entry)):
        if entry.backend not in _TENSORRT:
            graphs = [entry.graph] + ([] if entry.native is None else [entry.native.graph])
            for name in graphs:
                check_operators(package.files[name], ort.allow_operators)
    target = _load_of_package(
        package,
        target_entry,
        name="target",
        device=target_device,
        num_threads=num_threads,
        options=ort,
    )
    if draft_entry is None:
        return LoadedPackage(package, target, None, False)
    try:
        draft = _load_of_package(
            package,
            draft_entry,
            name="draft",
            device=other_device,
            num_threads=num_threads,
            share_cache_with=target if shares else None,
            options=ort,
        )
    except BaseException:
        target.close()
        raise
    return LoadedPackage(package, target, draft, shares)


def _check_runnable(name: str, entry: EngineEntry, device: Device) -> None:
    if entry.backend not in _BACKENDS:
        raise EngineError(
            f"engines.{name}.backend is {shown(entry.backend)}; this release runs "
            f"{', '.join(_BACKENDS)}; export the package with --backend onnxruntime"
        )
    if entry.backend not in _TENSORRT:
        require_provider(device, tensorrt=entry.backend == "onnxruntime-tensorrt")


def load_engine(
    graph: Path,
    entry: EngineEntry,
    *,
    name: str,
    device: Device,
    native_graph: Path | None = None,
    num_threads: int | None = None,
    share_cache_with: Engine | None = None,
    options: OrtOptions = DEFAULT_ORT_OPTIONS,
    content: str | None = None,
) -> Engine:
    """Build one engine with its backend.

    Args:
        graph: the engine's file.
        entry: its manifest entry.
        name: "target" or "draft", for messages.
        device: where it runs.
        native_graph: the file that `entry.native` names, if it has one.
        num_threads: of engines on the CPU.
        share_cache_with: read and write this engine's KV cache instead of an own one.
        options: how engines on ONNX Runtime run.
        content: identifies the graph and its weights in `options.load_cache`.

    Raises:
        EngineError, DeviceError, MissingDependencyError: as `load_package`.
    """
    if entry.backend in _TENSORRT:
        from specdec.engines.tensorrt.load import load_tensorrt_engine

        return load_tensorrt_engine(
            graph, entry, name=name, device=device, share_cache_with=share_cache_with
        )
    from specdec.engines.native.load import choose_library, load_native_engine
    from specdec.engines.onnxruntime.load import load_ort_engine

    library = choose_library(entry, name, device, options)
    if library is not None and native_graph is not None:
        return load_native_engine(
            native_graph,
            entry,
            library,
            name=name,
            device=device,
            num_threads=num_threads,
            share_cache_with=share_cache_with,
            options=options,
        )
    return load_ort_engine(
        graph,
        entry,
        name=name,
        device=device,
        num_threads=num_threads,
        share_cache_with=share_cache_with,
        options=options,
        content=content,
    )


def _load_of_package(
    package: Package,
    entry: EngineEntry,
    *,
    name: str,
    device: Device,
    num_threads: int | None,
    options: OrtOptions,
    share_cache_with: Engine | None = None,
) -> Engine:
    return load_engine(
        package.files[entry.graph],
        entry,
        name=name,
        device=device,
        native_graph=None if entry.native is None else package.files[entry.native.graph],
        num_threads=num_threads,
        share_cache_with=share_cache_with,
        options=options,
        content=_content(package, entry),
    )


def _content(package: Package, entry: EngineEntry) -> str:
    """What identifies an engine: its graph's name and the checksums of all files around it."""
    folder = PurePosixPath(entry.graph).parent
    files = package.manifest.files
    around = [name for name in sorted(files) if PurePosixPath(name).is_relative_to(folder)]
    return " ".join([entry.graph, *(f"{name} {files[name].sha256}" for name in around)])
