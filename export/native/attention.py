"""From `GroupQueryAttention` over one sequence to native attention over the slots of a cache.

    seqlens_k, total_sequence_length  ->  query_starts int32 [B + 1], past_lengths int32 [B],
                                          slots int32 [B]
    caches [batch, kv_heads, capacity, head_size]  ->  [slots, ...]

The rows of B sequences lie side by side in one pass; see docs/packages.md.
"""

from __future__ import annotations

import onnx_ir as ir

from specdec.engines.in_place import PAST, PRESENT
from specdec.engines.native.library import DOMAIN
from specdec.export.editing.model import take_place

__all__ = ["replace_attention", "why_not"]

_ATTENTION = "GroupQueryAttention"
_LENGTHS = ("seqlens_k", "total_sequence_length")
_SEQUENCES = {"query_starts": "ends", "past_lengths": "sequences", "slots": "sequences"}
_ATTRIBUTES = {
    *("num_heads", "kv_num_heads", "scale", "softcap", "local_window_size"),
    *("do_rotary", "rotary_interleaved"),
}
_COS, _POSITIONS, _BIAS, _SINKS = 7, 9, 10, 11
"""Inputs of `GroupQueryAttention`."""


def why_not(model: ir.Model) -> str | None:
    """Why the attention of `model` cannot be native; None when it can."""
    nodes = [node for node in model.graph if node.op_type == _ATTENTION]
    if not nodes:
        return "it has no in-place attention"
    for node in nodes:
        other = sorted(set(node.attributes) - _ATTRIBUTES)
        if other:
            return f"its attention has the attribute {other[0]}"
        if any(len(node.inputs) > index and node.inputs[index] for index in (_POSITIONS, _BIAS)):
            return "its attention takes positions or a bias"
    for name in _LENGTHS:
        value = _input(model, name)
        if value is not None and any(use.node.op_type != _ATTENTION for use in value.uses()):
            return f"more than attention reads {name}"
    return None


def replace_attention(model: ir.Model) -> int:
    """Make every attention node native and state the lengths of sequences, in place.

    Returns:
        How many nodes were replaced.
    """
    sequences = [_new_input(model, name, axis) for name, axis in _SEQUENCES.items()]
    nodes = [node for node in model.graph if node.op_type == _ATTENTION]
    for node in nodes:
        _replace(model, node, sequences)
    for name in _LENGTHS:
        value = _input(model, name)
        if value is not None:
            model.graph.inputs.remove(value)
    for value in [*model.graph.inputs, *model.graph.outputs]:
        if str(value.name).startswith((PAST, PRESENT)) and value.shape is not None:
            value.shape = ir.Shape(["slots", *list(value.shape)[1:]])
    return len(nodes)


def _replace(model: ir.Model, node: ir.Node, sequences: list[ir.Value]) -> None:
    inputs = [*node.inputs, *[None] * (_SINKS + 1 - len(node.inputs))]
    native = ir.node(
        "Attention",
        [*inputs[:5], *sequences, *inputs[_COS : _COS + 2], inputs[_SINKS]],
        dict(node.attributes),
        domain=DOMAIN,
        num_outputs=3,
    )
    for index, old in enumerate(node.outputs):
        take_place(model, old, native, index)
    model.graph.remove(node, safe=True)


def _input(model: ir.Model, name: str) -> ir.Value | None:
    return next((value for value in model.graph.inputs if value.name == name), None)


def _new_input(model: ir.Model, name: str, axis: str) -> ir.Value:
    value = ir.Value(name=name, shape=ir.Shape([axis]), type=ir.TensorType(ir.DataType.INT32))
    model.graph.inputs.append(value)
    return value
