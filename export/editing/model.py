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
