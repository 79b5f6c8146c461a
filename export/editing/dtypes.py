"""Infer the element types of a graph's values, which a traced graph leaves out."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["state_types"]

_FIXED = {
    **dict.fromkeys(("Shape", "Size", "NonZero", "ArgMax", "ArgMin"), ir.DataType.INT64),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less"), ir.DataType.BOOL),
    **dict.fromkeys(("MatMulInteger", "ConvInteger"), ir.DataType.INT32),
    **dict.fromkeys(("LessOrEqual", "And", "Or", "Not", "Xor", "IsNaN"), ir.DataType.BOOL),
}
_TYPE_FROM = {"Where": 1, "DequantizeLinear": 1, "OneHot": 2}
"""Input whose type the output has; the first one for every other operator."""


def state_types(model: ir.Model) -> None:
    """Give every value of `model` its element type, in place.

    Knows the operators that traced decoders are made of; a value that has a type keeps it.
    """
    for node in model.graph:
        for index, output in enumerate(node.outputs):
            dtype = output.dtype or _dtype(node, index)
            if dtype is not None:
                output.type = ir.TensorType(dtype)


def _dtype(node: ir.Node, index: int) -> ir.DataType | None:
    if node.op_type == "Cast":
        return ir.DataType(node.attributes.get_int("to"))
    if node.op_type == "TopK" and index == 1:
        return ir.DataType.INT64
    if node.op_type == "DynamicQuantizeLinear":
        return ir.DataType.FLOAT if index == 1 else ir.DataType.UINT8
    if node.op_type == "ConstantOfShape":
        filled = node.attributes.get_tensor("value", None)
        return ir.DataType.FLOAT if filled is None else filled.dtype
    if node.op_type in _FIXED:
        return _FIXED[node.op_type]
    source = node.inputs[_TYPE_FROM.get(node.op_type, 0)]
    return None if source is None else source.dtype
