"""Write the two graphs of a CPU engine over one data file: standard and native."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from specdec.engines.native.library import VERSION
from specdec.engines.package.entries import EngineEntry, NativeEntry
from specdec.export.native.attention import why_not
from specdec.export.native.panels import unpack
from specdec.export.native.rewrite import Rewritten, rewrite
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
    _write_data([native, standard], graph)
    ir.save(native, graph.with_name(native_name(graph.name)))
    ir.save(standard, graph)
    return NativeEntry(graph=native_name(name), operators=VERSION), done


def _write_data(models: list[ir.Model], graph: Path) -> None:
    """Move the constants of all models to one file; those of one name are one."""
    data = graph.with_name(f"{graph.name}.data")
    partial = data.with_name(f"{data.name}.partial")
    written: dict[str, ir.TensorProtocol] = {}
    with partial.open("wb") as out:
        for model in models:
            for name, value in model.graph.initializers.items():
                tensor = value.const_value
                assert tensor is not None
                if name not in written:
                    written[name] = _written(out, tensor, name, data)
                value.const_value = written[name]
    partial.replace(data)


def _written(out: BinaryIO, tensor: ir.TensorProtocol, name: str, data: Path) -> ir.TensorProtocol:
    """Write a constant behind the others and return where it is; a small one stays in the graph."""
    if tensor.nbytes <= _INLINE:
        return ir.tensor(np.array(tensor.numpy()), dtype=tensor.dtype, name=name)
    offset = -(-out.tell() // _ALIGNMENT) * _ALIGNMENT
    out.seek(offset)
    content = tensor.tobytes()
    out.write(content)
    return ir.ExternalTensor(
        data.name,
        offset,
        len(content),
        tensor.dtype,
        shape=tensor.shape,
        name=name,
        base_dir=data.parent,
    )
