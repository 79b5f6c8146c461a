"""Constants packed as native operators read them, and the nodes that unpack them again.

Packing only permutes and pads, so the standard graph reads the same bytes through `Transpose`,
`Reshape` and `Slice`, which ONNX Runtime folds into the original constants when it loads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from specdec.export.editing.builder import GraphBuilder
from specdec.export.native.products import Weight
from specdec.export.native_panels import (
    BLOCK_COLUMNS,
    FP16_COLUMNS,
    interleave_panels,
    pack_blocks,
    pack_columns,
    pack_fp16,
)

__all__ = ["Panels", "pack", "unpack"]

_FP16_ROWS, _FP16_COLUMNS, _BLOCKS, _COLUMNS = "fp16 rows", "fp16 columns", "blocks", "columns"


@dataclass(frozen=True)
class Panels:
    """One packed constant and what it stands for."""

    tensor: ir.LazyTensor
    """Computed when it is written."""
    layout: str
    originals: tuple[ir.TensorProtocol, ...]
    """Initializers of the unpacked graph; two where gate and up alternate panel by panel."""
    rows: int
    """N of the product: what follows in the last panel is padding."""

    @property
    def name(self) -> str:
        """Of the initializer."""
        return str(self.tensor.name)


def pack(weights: Sequence[Weight]) -> list[Panels]:
    """The panels of one weight, or of a gated product's two: [gate, up].

    Returns:
        In the order of the operator's inputs: FP16 panels, or blocks, scales and zero points.
    """
    first = weights[0]
    if first.is_fp16:
        layouts = [_FP16_ROWS if first.rows_first else _FP16_COLUMNS]
    else:
        layouts = [_BLOCKS, _COLUMNS, _COLUMNS][: len(first.values)]
    return [
        _packed([weight.values[index].const_value for weight in weights], layout, first.n)
        for index, layout in enumerate(layouts)
    ]


def _packed(tensors: list[ir.TensorProtocol], layout: str, rows: int) -> Panels:
    columns = FP16_COLUMNS if layout in (_FP16_ROWS, _FP16_COLUMNS) else BLOCK_COLUMNS
    panels = math.ceil(rows / columns)
    shape = [len(tensors) * panels, *_panel_shape(tensors[0], layout, rows)]
    name = f"{tensors[0].name}.panels"
    tensor = ir.LazyTensor(
        functools.partial(_values, tensors, layout, rows),
        dtype=tensors[0].dtype,
        shape=ir.Shape(shape),
        name=name,
    )
    return Panels(tensor, layout, tuple(tensors), rows)


def _panel_shape(tensor: ir.TensorProtocol, layout: str, rows: int) -> list[int]:
    shape = [int(size) for size in tensor.shape]
    if layout == _FP16_ROWS:
        return [shape[1], FP16_COLUMNS]
    if layout == _FP16_COLUMNS:
        return [shape[0], FP16_COLUMNS]
    if layout == _BLOCKS:
        return [shape[1], shape[2] // 4, BLOCK_COLUMNS, 4]
    return [math.prod(shape) // rows, BLOCK_COLUMNS]


def _values(tensors: list[ir.TensorProtocol], layout: str, rows: int) -> ir.Tensor:
    pack_one: dict[str, Callable[[Any], Any]] = {
        _FP16_ROWS: pack_fp16,
        _FP16_COLUMNS: lambda matrix: pack_fp16(matrix.T),
        _BLOCKS: pack_blocks,
        _COLUMNS: lambda values: pack_columns(values, rows),
    }
    packed = [pack_one[layout](tensor.numpy()) for tensor in tensors]
    return ir.tensor(packed[0] if len(packed) == 1 else interleave_panels(*packed))


def unpack(model: ir.Model, panels: Panels) -> None:
    """Let `model` compute the original constants from `panels`, in place."""
    value = ir.Value(
        name=panels.name,
        shape=panels.tensor.shape,
        type=ir.TensorType(panels.tensor.dtype),
        const_value=panels.tensor,
    )
    model.graph.register_initializer(value)
    make = GraphBuilder(model, before=next(iter(model.graph)))
    for index, original in enumerate(panels.originals):
        old = model.graph.initializers[original.name]
        one = value
        if len(panels.originals) > 1:  # every other panel
            count = int(panels.tensor.shape[0])
            one = make.op("Slice", one, *(make.constant([x]) for x in (index, count, 0, 2)))
        shape = [int(size) for size in original.shape]
        if panels.layout == _FP16_ROWS:
            _replace_transposes(model, make, old, one, panels)
        if old.uses():
            restored = _restored(make, one, panels.layout, shape, panels.rows)
            ir.convenience.replace_all_uses_with(old, restored)
        del model.graph.initializers[original.name]


def _replace_transposes(
    model: ir.Model, make: GraphBuilder, old: ir.Value, one: ir.Value, panels: Panels
) -> None:
    """Unpack a matrix [N, K] as [K, N] for what turns it over: one step instead of two."""
    for use in list(old.uses()):
        if use.node.op_type == "Transpose":
            shape = [int(panels.tensor.shape[1]), panels.rows]
            turned = _restored(make, one, _FP16_COLUMNS, shape, panels.rows)
            ir.convenience.replace_all_uses_with(use.node.outputs[0], turned)
            model.graph.remove(use.node, safe=True)


def _restored(
    make: GraphBuilder, one: ir.Value, layout: str, shape: list[int], rows: int
) -> ir.Value:
    """The constant of `shape` whose panels are `one`."""
    padded = -(-rows // _width(layout)) * _width(layout)
    perm, wide, axis = {
        _FP16_ROWS: ([0, 2, 1], [padded, shape[-1]], 0),
        _FP16_COLUMNS: ([1, 0, 2], [shape[0], padded], 1),
        _BLOCKS: ([0, 3, 1, 2, 4], [padded, *shape[1:]], 0),
        _COLUMNS: ([0, 2, 1], [padded, math.prod(shape) // rows], 0),
    }[layout]
    value = make.op("Transpose", one, perm=perm)
    if padded == rows:
        return make.op("Reshape", value, make.constant(shape))
    value = make.op("Reshape", value, make.constant(wide))
    value = make.op("Slice", value, *(make.constant([x]) for x in (0, rows, axis)))
    return make.op("Reshape", value, make.constant(shape)) if layout == _COLUMNS else value


def _width(layout: str) -> int:
    return FP16_COLUMNS if layout in (_FP16_ROWS, _FP16_COLUMNS) else BLOCK_COLUMNS
