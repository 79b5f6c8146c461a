"""Write the two graphs of a CPU engine over one data file: standard and native."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from specdec.engines.native.library import VERSION
from specdec.engines.package.entries import EngineEntry, NativeEntry
from specdec.engines.storage.writing import create_file
from specdec.export.native.attention import why_not
from specdec.export.native.panels import Panels, unpack
from specdec.export.native.rewrite import rewrite
from specdec.export.native.rewritten import Rewritten
from specdec.export.weights.recipes import Recipe

__all__ = ["add_native", "native_name", "write_native"]

_ALIGNMENT = 4096
_INLINE = 256
"""Bytes up to which a constant lies in the graph itself."""


def native_name(graph: str) -> str:
    """Path of the native graph that goes with a standard one, "x.onnx" -> "x.native.onnx"."""
    return f"{graph.removesuffix('.onnx')}.native.onnx"


def add_native(
    directory: Path, entry: EngineEntry, recipe: Recipe
) -> tuple[EngineEntry, str | None]:
    """Give an engine that has been written a native graph, if it is one for CPUs.

    Args:
        directory: of the package; `entry.graph` lies in it.
        entry: the engine.
        recipe: its weights were made with.

    Returns:
        The entry, with its native graph if it got one, and a line for people about it.
    """
    if recipe.method == "tensorrt" or recipe.compute == "fp16" or entry.layout != "in_place":
        return entry, None
    done = write_native(directory / entry.graph, entry.graph)
    if isinstance(done, str):
        return entry, f"no graph over native operators: {done}"
    native, counts = done
    return replace(entry, native=native), f"native operators: {counts}"


def write_native(graph: Path, name: str) -> tuple[NativeEntry, Rewritten] | str:
    """Give an engine a native graph, and both graphs one data file.

    Args:
        graph: a standard graph of the in-place layout for a CPU, weights beside it. It is written
            again: its numbers stay the same, its weights are read from panels.
        name: its path inside the package.

    Returns:
        The record for the manifest and what was replaced; or why there is no native graph, with
        nothing changed.
    """
    native, standard = ir.load(graph), ir.load(graph)
    reason = why_not(native)
    if reason is not None:
        return reason
    done = rewrite(native)
    for panels in done.panels:
        unpack(standard, panels)
    common.RemoveUnusedNodesPass()(standard)
    _write_data([native, standard], done.panels, graph)
    ir.save(native, graph.with_name(native_name(graph.name)))
    ir.save(standard, graph)
    return NativeEntry(graph=native_name(name), operators=VERSION), done


def _write_data(models: list[ir.Model], panels: list[Panels], graph: Path) -> None:
    """Move the constants of all models to one file; those of one name are one."""
    data = graph.with_name(f"{graph.name}.data")
    partial = data.with_name(f"{data.name}.partial")
    originals = {packed.name: packed.originals for packed in panels}
    moved: dict[str, ir.TensorProtocol] = {}
    with create_file(partial) as out:
        writer = _Writer(out, data)
        for model in models:
            for name, value in model.graph.initializers.items():
                tensor = value.const_value
                assert tensor is not None
                if name not in moved:
                    moved[name] = writer.write(tensor, name, originals.get(name, (tensor,)))
                value.const_value = moved[name]
    partial.replace(data)


class _Writer:
    """Writes constants behind each other; what came from the same bytes is written once."""

    def __init__(self, out: BinaryIO, data: Path) -> None:
        self._out, self._data = out, data
        self._places: dict[tuple[object, ...], tuple[int, int]] = {}

    def write(
        self, tensor: ir.TensorProtocol, name: str, sources: Sequence[ir.TensorProtocol]
    ) -> ir.TensorProtocol:
        """Write a constant and return where it is; a small one stays in the graph.

        Args:
            tensor: the constant.
            name: of the result.
            sources: what it is made of: itself, or the originals of its panels.
        """
        if tensor.nbytes <= _INLINE:
            return ir.tensor(np.array(tensor.numpy()), dtype=tensor.dtype, name=name)
        key = (tuple(tensor.shape), *(_origin(source) for source in sources))
        if key not in self._places:
            offset = -(-self._out.tell() // _ALIGNMENT) * _ALIGNMENT
            self._out.seek(offset)
            content = tensor.tobytes()
            self._out.write(content)
            self._places[key] = (offset, len(content))
        return ir.ExternalTensor(
            self._data.name,
            *self._places[key],
            tensor.dtype,
            shape=tensor.shape,
            name=name,
            base_dir=self._data.parent,
        )


def _origin(tensor: ir.TensorProtocol) -> object:
    """What two tensors share if and only if they are the same bytes of one file, or one tensor."""
    if isinstance(tensor, ir.ExternalTensor):
        return (tensor.path, tensor.offset, tensor.length, tensor.dtype)
    return id(tensor)
