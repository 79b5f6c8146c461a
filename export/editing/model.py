"""Save a graph with its weights beside it, add constants, and tell products and look-ups apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

__all__ = [
    "CONTRIB",
    "MAX_LENGTH",
    "TRANSPOSED",
    "add_initializer",
    "is_token_lookup",
    "is_weight_product",
    "save_graph",
    "take_place",
]

CONTRIB = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""
MAX_LENGTH = "specdec.max_length"
"""Metadata of a traced graph: capacity of its cache in tokens."""
TRANSPOSED = ".transposed"
"""Suffix of a weight that is the transpose of the one before the suffix (a tied output head)."""


def save_graph(model: ir.Model, path: Path) -> None:
    """Write `path` and, beside it, all weights in `<name>.data` (so the graph may pass 2 GB)."""
    ir.save(model, path, external_data=f"{path.name}.data", alignment=4096)


def add_initializer(model: ir.Model, name: str, array: np.ndarray) -> ir.Value:
    """Register a new constant of `model` and return its value."""
    tensor = ir.tensor(array, name=name)
    value = ir.Value(
        name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor
    )
    model.graph.register_initializer(value)
    return value


def is_token_lookup(node: ir.Node) -> bool:
    """Whether `node` picks rows of a float32 table by the ids of `input_ids`."""
    if node.op_type != "Gather" or not node.inputs[0].is_initializer():
        return False
    table, ids = node.inputs[0].const_value, node.inputs[1]
    while ids.producer() is not None and ids.producer().op_type in ("Reshape", "Cast"):
        ids = ids.producer().inputs[0]
    is_float = table.dtype == ir.DataType.FLOAT and len(table.shape) == 2
    return is_float and ids.name == "input_ids"


def is_weight_product(node: ir.Node) -> bool:
    """Whether `node` multiplies by a constant of at least two axes."""
    if node.op_type != "MatMul" or node.inputs[1] is None:
        return False
    return node.inputs[1].is_initializer() and len(node.inputs[1].const_value.shape) >= 2


def take_place(model: ir.Model, old: ir.Value, node: ir.Node, index: int = 0) -> ir.Value:
    """Let output `index` of `node` be what `old` was, under its name, for all that reads it.

    Args:
        model: receives `node` before the node that makes `old`, unless it has it already.
        old: an output of a node; it stays, unused, under another name.
        node: the replacement.
        index: of its output.

    Returns:
        The new value.
    """
    maker = old.producer()
    assert maker is not None
    if node.graph is None:
        model.graph.insert_before(maker, node)
    new = node.outputs[index]
    new.name, new.type, new.shape = old.name, old.type, old.shape
    old.name = f"{old.name}.replaced"
    for place, output in enumerate(model.graph.outputs):
        if output is old:
            model.graph.outputs[place] = new
    ir.convenience.replace_all_uses_with(old, new)
    return new
