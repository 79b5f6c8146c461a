"""Project queries, keys and values with one multiplication.

The three projections read the same rows. Side by side as one matrix they cost one operator (one
hand-off to the threads) instead of three, and the attention node takes the packed rows as they
are. The gate and up projections of a feed-forward stay apart: packed, they need a split again,
and that costs as much as it saves (docs/tuning.md).
"""

from __future__ import annotations

import functools

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from specdec.export.editing.model import add_initializer

__all__ = ["pack_projections"]


def pack_projections(model: ir.Model) -> None:
    """Merge the query, key and value projections of every attention node, in place."""
    for node in list(model.graph):
        if node.op_type == "GroupQueryAttention":
            _pack_attention(model, node)
    common.RemoveUnusedNodesPass()(model)


def _pack_attention(model: ir.Model, attention: ir.Node) -> None:
    """Feed [query | key | value] as one input when all three are plain projections."""
    chains = [_chain(attention.inputs[i]) for i in range(3)]
    if any(chain is None for chain in chains):
        return
    matmuls = [chain[0] for chain in chains if chain]
    biases = [chain[1] for chain in chains if chain]
    if len({id(m.inputs[0]) for m in matmuls}) != 1 or len({b is None for b in biases}) != 1:
        return
    packed = _concatenated(model, matmuls)
    # A projection is written after its input, so just before the attention node is late enough.
    product = ir.node("MatMul", [matmuls[0].inputs[0], packed])
    nodes = [product]
    if biases[0] is not None:
        values = [b.const_value.numpy() for b in biases if b is not None]
        bias = add_initializer(model, f"{biases[0].name}_packed", np.concatenate(values))
        nodes.append(ir.node("Add", [product.outputs[0], bias]))
    model.graph.insert_before(attention, nodes)
    attention.replace_input_with(0, nodes[-1].outputs[0])
    attention.replace_input_with(1, None)
    attention.replace_input_with(2, None)


def _chain(value: ir.Value | None) -> tuple[ir.Node, ir.Value | None] | None:
    """(projection, bias or None) when `value` is `x @ W` or `x @ W + b` and used once."""
    if value is None or len(value.uses()) != 1 or value.producer() is None:
        return None
    node = value.producer()
    if _is_projection(node):
        return node, None
    if node.op_type != "Add":
        return None
    first, second = node.inputs
    if first is not None and first.is_initializer():
        first, second = second, first
    if first is None or second is None or not second.is_initializer():
        return None
    producer = first.producer()
    if producer is None or not _is_projection(producer) or len(first.uses()) != 1:
        return None
    if tuple(second.const_value.shape) != (producer.inputs[1].const_value.shape[1],):
        return None
    return producer, second


def _is_projection(node: ir.Node | None) -> bool:
    if node is None or node.op_type != "MatMul" or node.domain:
        return False
    weight = node.inputs[1]
    if weight is None or not weight.is_initializer() or node.outputs[0].is_graph_output():
        return False
    return len(weight.const_value.shape) == 2 and len(weight.uses()) == 1


def _concatenated(model: ir.Model, nodes: list[ir.Node]) -> ir.Value:
    """The matrices of `nodes` side by side, joined when the graph is saved."""
    parts = [node.inputs[1].const_value for node in nodes]
    name = f"{nodes[0].inputs[1].name}.packed"
    shape = ir.Shape((parts[0].shape[0], sum(int(part.shape[1]) for part in parts)))
    lazy = ir.LazyTensor(
        functools.partial(_joined, parts), dtype=parts[0].dtype, shape=shape, name=name
    )
    value = ir.Value(name=name, shape=shape, type=ir.TensorType(lazy.dtype), const_value=lazy)
    model.graph.register_initializer(value)
    return value


def _joined(parts: list[ir.TensorProtocol]) -> ir.Tensor:
    return ir.tensor(np.concatenate([part.numpy() for part in parts], axis=1))
