"""Store the float32 weights of a graph in half the bytes.

An FP16 target on the CPU keeps FP16 weights on disk and computes in FP32 (FP16 arithmetic is
three times slower there): every large matrix becomes an FP16 initializer and a `Cast`, which
ONNX Runtime folds once when it loads. The token embedding, when it is a table of its own, is cast
row by row after the look-up instead, so it stays small in memory too. Norms, biases and the
tables of rotary angles are small and stay FP32. An output head tied to the embedding is not stored
twice: the graph transposes the one table, which ONNX Runtime folds as well.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from specdec.export.editing.model import TRANSPOSED, add_initializer

__all__ = ["cast_rows", "fits_half", "store_fp16"]

_SMALL = 4096
"""Elements below which a float32 weight (a norm, a bias) stays as it is."""
_FP16_MAX = 65504.0
_ROTATING = {"GroupQueryAttention", "GatherElements"}
"""Operators that read tables of rotary angles."""


def fits_half(weight: ir.Value) -> bool:
    """Whether FP16 holds every value of the initializer `weight`."""
    array = weight.const_value.numpy()
    return array.size == 0 or bool(np.abs(array).max() <= _FP16_MAX)


def store_fp16(model: ir.Model) -> list[str]:
    """Turn the large float32 weights of `model` into FP16 with casts, in place.

    Returns:
        Names of weights that stay float32 because a value is outside FP16's range.
    """
    kept: list[str] = []
    stored: dict[str, ir.Value] = {}
    for name, value in sorted(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.dtype != ir.DataType.FLOAT or tensor.size < _SMALL:
            continue
        if len(tensor.shape) < 2 or any(u.node.op_type in _ROTATING for u in value.uses()):
            continue
        table = stored.get(name.removesuffix(TRANSPOSED)) if name.endswith(TRANSPOSED) else None
        if table is not None:
            _replace(model, value, _transpose(model, table))
            continue
        if not fits_half(value):
            kept.append(name)
            continue
        half = tensor.numpy().astype(np.float16)
        stored[name] = add_initializer(model, f"{name}_fp16", half)
        _replace(model, value, stored[name])
    return kept


def _transpose(model: ir.Model, table: ir.Value) -> ir.Value:
    turned = ir.node("Transpose", [table], {"perm": [1, 0]})
    model.graph.insert_before(next(iter(model.graph)), turned)
    return turned.outputs[0]


def _replace(model: ir.Model, value: ir.Value, stored: ir.Value) -> None:
    """Read `value` from an FP16 weight instead, cast where it is used."""
    uses = list(value.uses())
    name = value.name
    if all(use.node.op_type == "Gather" and use.idx == 0 for use in uses):
        for use in uses:
            cast_rows(model, use.node, stored)
    else:
        cast = ir.node("Cast", [stored], {"to": ir.DataType.FLOAT})
        maker = stored.producer()
        if maker is None:
            model.graph.insert_before(next(iter(model.graph)), cast)
        else:
            model.graph.insert_after(maker, cast)
        ir.convenience.replace_all_uses_with(value, cast.outputs[0])
    del model.graph.initializers[name]


def cast_rows(model: ir.Model, gather: ir.Node, table: ir.Value) -> None:
    """Let `gather` pick rows of the FP16 `table` and cast those, instead of its own table."""
    output = gather.outputs[0]
    picked = ir.node("Gather", [table, gather.inputs[1]], dict(gather.attributes))
    cast = ir.node("Cast", [picked.outputs[0]], {"to": ir.DataType.FLOAT})
    cast.outputs[0].type, cast.outputs[0].shape = output.type, output.shape
    model.graph.insert_before(gather, [picked, cast])
    ir.convenience.replace_all_uses_with(output, cast.outputs[0])
    model.graph.remove(gather, safe=True)
