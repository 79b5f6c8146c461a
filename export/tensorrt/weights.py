"""Give the matrices of a standard graph their TensorRT precision, strongly typed.

TensorRT computes exactly in the types that the graph states. So every multiplication by a weight
becomes an island of FP16 arithmetic,

    y = Cast(MatMul(Cast(x, FP16), W), FP32),

and what runs between the islands (norms, the residual stream, rotary angles, the logits) stays
FP32, where a large model's residuals would leave FP16's range. Those parts handle a few rows of
activations; the weights, which bound the speed of decoding, are read in

    fp16   W
    int8   W = DequantizeLinear(int8 [in, out], FP16 scale [out])              per output
    int4   W = DequantizeLinear(int4 [in, out], FP16 scale [in / block, out])  per block

and a product whose activations have been calibrated multiplies, with one step for all rows and
a divisor s an input channel (`specdec.export.calibration.scales`),

    int8   x' = DequantizeLinear(QuantizeLinear(Cast(x / s, FP16), step), step)
    int8   W' = DequantizeLinear(int8 [in, out] of s * W, FP16 scale [out])

which TensorRT computes in 8-bit integers: zero points are 0, steps are FP16 constants, one a
tensor for activations and one an output for weights.

Weights are rounded to nearest, symmetric: W is about q * s with s = max |W| / 127, or for 4 bits
s = -m / 8 with m the weight of largest magnitude, which so is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import common

from specdec.export.calibration.scales import ActivationScale
from specdec.export.editing.builder import GraphBuilder
from specdec.export.editing.dtypes import state_types
from specdec.export.editing.model import add_initializer, is_token_lookup, is_weight_product
from specdec.export.weights.half import FP16, beyond_half, compute_in_half, drop_unused, half_weight
from specdec.export.weights.recipes import Recipe
from specdec.export.weights.store import cast_rows, fits_half

__all__ = [
    "dequantized",
    "lower_precision",
    "quantized_blocks",
    "quantized_columns",
]

_INT8_MAX = 127


def lower_precision(
    model: ir.Model, recipe: Recipe, scales: Mapping[str, ActivationScale | None]
) -> list[str]:
    """Rewrite the weights of `model` in place.

    Args:
        model: a graph that `standardise_attention` has been over.
        recipe: one whose method is "tensorrt".
        scales: by name of a multiplied tensor; one without a scale stays FP16.

    Returns:
        Names of weights that stay float32 because a value is outside FP16's range.
    """
    kept: list[str] = []
    state_types(model)
    for node in list(model.graph):
        if is_weight_product(node):
            _make_island(model, node, recipe, scales.get(node.inputs[0].name), kept)
        elif is_token_lookup(node):
            _store_table(model, node, kept)
    common.CommonSubexpressionEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)
    return list(dict.fromkeys(kept))


def _store_table(model: ir.Model, lookup: ir.Node, kept: list[str]) -> None:
    """Keep an embedding in FP16, if that holds it, and cast the rows that are looked up."""
    table = lookup.inputs[0]
    if not fits_half(table):
        kept.append(str(table.name))
        return
    cast_rows(model, lookup, half_weight(model, table))
    drop_unused(model, table)


def _make_island(
    model: ir.Model, node: ir.Node, recipe: Recipe, scale: ActivationScale | None, kept: list[str]
) -> None:
    rows, weight = node.inputs
    beyond = beyond_half(node)
    if beyond:
        kept += beyond
        return
    if recipe.bits < 16 and len(weight.const_value.shape) == 2:
        make = GraphBuilder(model, before=node)
        array = weight.const_value.numpy()
        if scale is not None:
            array = array * scale.smoothing[:, None]
            node.replace_input_with(0, _quantized_rows(model, make, rows, scale))
        node.replace_input_with(1, _quantized(model, make, weight.name, array, recipe))
        drop_unused(model, weight)
    compute_in_half(model, node)


def _quantized_rows(
    model: ir.Model, make: GraphBuilder, rows: ir.Value, scale: ActivationScale
) -> ir.Value:
    """Activations through 8 bits; products of one tensor share the nodes (equal ones merge)."""
    constants = {
        "smoothing": 1 / scale.smoothing,
        "step": np.float16(scale.step),
        "zero": np.int8(0),
    }
    values = []
    for name, array in constants.items():
        known = model.graph.initializers.get(f"{rows.name}.{name}")
        values.append(known or add_initializer(model, f"{rows.name}.{name}", array))
    inverse, step, zero = values
    smooth = make.cast(make.op("Mul", rows, inverse), FP16)
    levels = make.op("QuantizeLinear", smooth, step, zero)
    left = make.op("DequantizeLinear", levels, step, zero)
    left.type = ir.TensorType(FP16)
    return left


def _quantized(
    model: ir.Model,
    make: GraphBuilder,
    weight: str,
    array: NDArray[np.float32],
    recipe: Recipe,
) -> ir.Value:
    """A `DequantizeLinear` of the weight; of 8 bits where the blocks do not fill the matrix."""
    name = f"{weight}.int{recipe.bits}"
    if recipe.bits == 4 and array.shape[0] % recipe.block_size == 0:
        levels, scales = quantized_blocks(array, recipe.block_size)
        stored = add_initializer(model, name, levels.astype(ml_dtypes.int4))
        attributes = {"axis": 0, "block_size": recipe.block_size}
    else:
        levels, scales = quantized_columns(array)
        stored = add_initializer(model, name, levels)
        attributes = {"axis": 1}
    factors = add_initializer(model, f"{name}.scale", scales)
    matrix = make.op("DequantizeLinear", stored, factors, **attributes)
    matrix.type = factors.type
    return matrix


def quantized_columns(array: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """8 bits with one scale an output.

    Args:
        array: float32 [in, out].

    Returns:
        int8 [in, out] in -127 .. 127, and float16 scales [out].
    """
    scales = _nonzero(np.abs(array).max(axis=0) / _INT8_MAX)
    levels = np.rint(array / scales.astype(np.float32)).clip(-_INT8_MAX, _INT8_MAX)
    return levels.astype(np.int8), scales


def quantized_blocks(
    array: NDArray[np.float32], block_size: int
) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """4 bits with one scale for every `block_size` inputs of an output.

    Args:
        array: float32 [in, out]; `in` is a multiple of `block_size`.
        block_size: weights that share a scale.

    Returns:
        int8 [in, out] in -8 .. 7, and float16 scales [in / block_size, out].
    """
    blocks = array.reshape(-1, block_size, array.shape[1])
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)[:, 0]
    scales = _nonzero(largest / -8)
    levels = np.rint(blocks / scales.astype(np.float32)[:, None]).clip(-8, 7)
    return levels.astype(np.int8).reshape(array.shape), scales


def dequantized(levels: NDArray[np.int8], scales: NDArray[np.float16]) -> NDArray[np.float32]:
    """What `DequantizeLinear` makes of a result of the two functions above, in float32."""
    factors = scales.astype(np.float32).reshape(-1, levels.shape[1])
    repeats = levels.shape[0] // factors.shape[0]
    return levels.astype(np.float32) * np.repeat(factors, repeats, axis=0)


def _nonzero(scales: NDArray[Any]) -> NDArray[np.float16]:
    """FP16 scales; one that would round to zero becomes the smallest FP16."""
    half = scales.astype(np.float16)
    return np.where(half == 0, np.float16(2**-24), half)
