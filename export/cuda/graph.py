"""Rewrite a graph for ONNX Runtime's CUDA provider: FP16 products, attention and KV cache.

Products with weights, and attention, compute in FP16 (attention has no FP32 kernel there). So
does what lies between two of them and touches nothing else: biases of queries and keys, and the
activation of a feed-forward. FP32 would save no range there, as the next product reads FP16
anyway, and would cost two casts. Norms, the residual stream, what adds to it and the logits are
FP32: a large model's residuals leave FP16's range. A layer of a Llama is left with four casts,

    norm -> FP16 [q|k|v] product, attention, output product -> FP32 residual
    norm -> FP16 gate, up, activation, down product         -> FP32 residual

Matrices are FP16, or `MatMulNBits` of 8 or 4 bits with FP16 scales. A head tied to an FP16
embedding reads the same table. ONNX Runtime's CPU provider runs the result too, slowly, with
products of blocks in 8-bit integers.
"""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes import common

from specdec.export.cuda.operators import check_placement
from specdec.export.editing.dtypes import state_types
from specdec.export.editing.model import (
    CONTRIB,
    TRANSPOSED,
    is_token_lookup,
    save_graph,
)
from specdec.export.graphs.attention import require_cached_attention
from specdec.export.weights.half import (
    beyond_half,
    cancel_casts,
    compute_in_half,
    drop_unused,
    half_weight,
)
from specdec.export.weights.quantize import quantized_graph
from specdec.export.weights.recipes import Recipe
from specdec.export.weights.store import cast_rows, fits_half

__all__ = ["half_nodes", "write_cuda_graph"]

_FP32 = ir.DataType.FLOAT
_PRODUCTS = {"MatMul": 1, "FusedMatMul": 1, "Gemm": 1, "MatMulNBits": 2}
"""Operators whose input of that index is a weight (of `MatMulNBits`: its scales)."""
_ATTENTION = "GroupQueryAttention"
_ROW_BY_ROW = {
    *("Add", "Sub", "Mul", "Div", "Neg", "Pow", "Clip", "Min", "Max", "Identity"),
    *("Sigmoid", "Tanh", "Erf", "Relu", "Gelu"),
    *("Reshape", "Transpose", "Split", "Slice", "Squeeze", "Unsqueeze", "Concat", "Expand"),
}
"""What may lie between two products: an activation, a bias, a change of shape."""


def write_cuda_graph(plain: Path, out: Path, recipe: Recipe) -> list[str]:
    """Rewrite a traced graph for the CUDA provider.

    Args:
        plain: a result of `specdec.export.engine_graphs.trace_graph`.
        out: the `.onnx` file to write; its weights go beside it.
        recipe: one of `find_recipe(..., device="cuda")`.

    Returns:
        Names of weights that stay float32 because a value is outside FP16's range.

    Raises:
        UnsupportedModelError: the graph has no in-place cache, or an operator without a kernel
            (such as attention that must stay FP32).
    """
    model = ir.load(plain)
    require_cached_attention(model, "the CUDA provider needs; use --device cpu")
    kept: list[str] = []
    if recipe.bits < 16:
        model = quantized_graph(plain, recipe)
    else:
        _share_tied_table(model)
        kept += _store_tables(model)
    state_types(model)
    cancel_casts(model)
    for node in half_nodes(model, kept):
        compute_in_half(model, node)
    cancel_casts(model)
    common.CommonSubexpressionEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)
    check_placement(model)
    save_graph(model, out)
    return list(dict.fromkeys(kept))


def half_nodes(model: ir.Model, kept: list[str]) -> list[ir.Node]:
    """The nodes of a float32 graph that compute in FP16, in the order of the graph.

    Args:
        model: a graph whose types are stated.
        kept: receives the names of constants beyond FP16, whose nodes stay out.
    """
    ends = {node for node in model.graph if _is_end(node, kept)}
    between: set[ir.Node] = set()
    for node in model.graph:
        if node.op_type in _ROW_BY_ROW and not node.domain and _fed_by(node, ends | between):
            between.add(node)
    while leaving := {
        node
        for node in between
        if not _stays(node, ends | between) or not _fed_by(node, ends | between)
    }:
        between -= leaving
    return [node for node in model.graph if node in ends or node in between]


def _is_end(node: ir.Node, kept: list[str]) -> bool:
    """Whether `node` is attention or a product with a weight, all of whose constants fit FP16."""
    if node.op_type != _ATTENTION and not _is_product(node):
        return False
    beyond = beyond_half(node)
    kept += beyond
    return not beyond


def _is_product(node: ir.Node) -> bool:
    """Whether `node` multiplies by a float32 weight."""
    index = _PRODUCTS.get(node.op_type)
    weight = None if index is None else node.inputs[index]
    if weight is None or not weight.is_initializer() or weight.dtype != _FP32:
        return False
    return len(weight.const_value.shape) >= 2 or node.op_type != "MatMul"


def _fed_by(node: ir.Node, half: set[ir.Node]) -> bool:
    """Whether all that `node` reads as float32 comes from `half` or is a constant that fits."""
    values = [v for v in node.inputs if v is not None and v.dtype == _FP32]
    produced = [v for v in values if not v.is_initializer()]
    constants = [v for v in values if v.is_initializer()]
    return (
        bool(produced)
        and all(v.producer() in half for v in produced)
        and all(fits_half(v) for v in constants)
    )


def _stays(node: ir.Node, half: set[ir.Node]) -> bool:
    """Whether only nodes of `half`, or the shape, are made of what `node` gives."""
    if any(value.is_graph_output() for value in node.outputs):
        return False
    readers = {use.node for value in node.outputs for use in value.uses()}
    return all(reader in half or reader.op_type == "Shape" for reader in readers)


def _share_tied_table(model: ir.Model) -> None:
    """Let a head that is the transposed embedding multiply by the table itself."""
    tables = {node.inputs[0].name: node.inputs[0] for node in model.graph if is_token_lookup(node)}
    for node in list(model.graph):
        weight = node.inputs[1] if node.op_type == "MatMul" else None
        name = "" if weight is None else str(weight.name)
        table = tables.get(name.removesuffix(TRANSPOSED)) if name.endswith(TRANSPOSED) else None
        if table is None:
            continue
        product = ir.node("FusedMatMul", [node.inputs[0], table], {"transB": 1}, domain=CONTRIB)
        model.graph.insert_before(node, product)
        old, new = node.outputs[0], product.outputs[0]
        new.shape = old.shape
        new.type = old.type
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        new.name = old.name
        model.graph.remove(node, safe=True)
        drop_unused(model, weight)


def _store_tables(model: ir.Model) -> list[str]:
    """Keep embeddings in FP16 and cast the rows that are looked up; those that do not fit stay."""
    kept = []
    for node in list(model.graph):
        if not is_token_lookup(node):
            continue
        table = node.inputs[0]
        if fits_half(table):
            cast_rows(model, node, half_weight(model, table))
            drop_unused(model, table)
        else:
            kept.append(str(table.name))
    return kept
