"""Write the attention of an in-place graph with standard operators, for TensorRT.

TensorRT has no `GroupQueryAttention`; since opset 24 ONNX can say the same itself. This pass
rewrites every such node of a graph that `specdec.export.engine_graphs.trace_graph` made:

    present_key   = TensorScatter(past_key, rotated key, past)        (the cache, in place)
    present_value = TensorScatter(past_value, value, past)
    out           = Attention(rotated query, present_key, present_value, visible)

    past       = seqlens_k + 1 - M                                    (the row written first)
    visible[i, j] = past + i - window < j <= past + i                 (j over the capacity)

`past`, the rotary angles of the M rows and `visible` are computed once for all layers. The
capacity and the batch of 1 are static, M is not. Names, geometry and meaning of inputs and
outputs stay, so ONNX Runtime runs the result behind the same engine: that is how its numbers are
checked where there is no GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from specdec.export.editing.builder import GraphBuilder
from specdec.export.graphs.attention import NO_WINDOW

__all__ = ["STANDARD_OPSET", "standardise_attention"]

STANDARD_OPSET = 24
"""First ONNX opset with `TensorScatter`."""
_NODE = "GroupQueryAttention"
_NUM_OPERANDS = 12
_PAST = "past_key_values."


def standardise_attention(model: ir.Model, capacity: int, kv_dtype: ir.DataType) -> None:
    """Rewrite `model` in place.

    Args:
        model: an in-place graph, float32.
        capacity: static capacity of the cache in tokens.
        kv_dtype: FLOAT or FLOAT16: element type of the cache, and of the arithmetic around it.
    """
    nodes = [node for node in model.graph if node.op_type == _NODE]
    _fix_shapes(model, capacity, kv_dtype)
    shared = _Shared(model, capacity)
    for node in nodes:
        _rewrite(model, node, shared, kv_dtype)
    model.graph.opset_imports[""] = STANDARD_OPSET
    common.CommonSubexpressionEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)
    common.RemoveUnusedOpsetsPass()(model)
    model.graph.inputs[:] = [value for value in model.graph.inputs if value.uses()]


def _fix_shapes(model: ir.Model, capacity: int, kv_dtype: ir.DataType) -> None:
    """State the batch and the capacity, which TensorRT wants to know, and the cache's type."""
    for value in [*model.graph.inputs, *model.graph.outputs]:
        shape: list[Any] = list(value.shape or ())
        is_cache = value.name.startswith((_PAST, "present."))
        if is_cache:
            heads, size = shape[1], shape[3]
            value.shape = ir.Shape((1, heads, capacity, size))
            value.type = ir.TensorType(kv_dtype)
        elif shape and value.name not in ("logit_rows", "total_sequence_length"):
            value.shape = ir.Shape((1, *shape[1:]))


class _Shared:
    """What all layers read: positions of the new rows, who sees whom, rotary angles."""

    def __init__(self, model: ir.Model, capacity: int) -> None:
        inputs = {value.name: value for value in model.graph.inputs}
        make = GraphBuilder(model, before=next(iter(model.graph)))  # all depends on inputs alone
        rows = make.op("Shape", inputs["input_ids"], start=1, end=2)
        total = make.op("Cast", inputs["seqlens_k"], to=ir.DataType.INT64)
        total = make.op("Add", total, make.constant([1]))
        self.past = make.op("Sub", total, rows)
        """int64 [batch]: tokens in the cache before this pass."""
        offsets = make.op(
            "Slice", make.constant(range(capacity)), make.constant([0]), rows, make.constant([0])
        )
        column = make.op("Unsqueeze", self.past, make.constant([1]))
        self.positions = make.op("Add", column, offsets)
        """int64 [batch, M]."""
        self._query_at = make.op("Unsqueeze", self.positions, make.constant([1, 3]))
        self._key_at = make.constant(np.arange(capacity)[None, None, None])
        self._make = make
        self._visible = {
            NO_WINDOW: make.op("LessOrEqual", self._key_at, self._query_at),
        }
        self._angles: dict[str, ir.Value] = {}

    def visible(self, window: int) -> ir.Value:
        """Bool [batch, 1, M, capacity]: which cached rows each new row attends to."""
        if window not in self._visible:
            edge = self._make.op("Sub", self._query_at, self._make.constant([window]))
            inside = self._make.op("Greater", self._key_at, edge)
            self._visible[window] = self._make.op("And", self._visible[NO_WINDOW], inside)
        return self._visible[window]

    def angles(self, table: ir.Value) -> ir.Value:
        """Rows of a cos or sin table at the new positions: [batch, M, rotary_size / 2]."""
        assert table.name is not None
        if table.name not in self._angles:
            self._angles[table.name] = self._make.op("Gather", table, self.positions)
        return self._angles[table.name]


def _rewrite(model: ir.Model, node: ir.Node, shared: _Shared, kv_dtype: ir.DataType) -> None:
    operands = [*node.inputs, *[None] * (_NUM_OPERANDS - len(node.inputs))]
    query, key, value, past_key, past_value, _, _, cos, sin, _, _, sink = operands
    count = node.attributes.get_int("num_heads")
    kv_count = node.attributes.get_int("kv_num_heads")
    head_size = int(past_key.shape[3])
    window = node.attributes.get_int("local_window_size", NO_WINDOW)
    visible = shared.visible(window)
    angles = () if cos is None else (shared.angles(cos), shared.angles(sin))
    interleaved = node.attributes.get_int("rotary_interleaved", 0)
    make = GraphBuilder(model, before=node)
    if key is None:  # packed [query | key | value]
        sizes = make.constant([count * head_size, kv_count * head_size, kv_count * head_size])
        query, key, value = make.ops("Split", 3, query, sizes, axis=-1)

    def heads(x: ir.Value, number: int, rotates: bool) -> ir.Value:
        split = make.op("Reshape", x, make.constant([0, 0, number, head_size]))
        turned = make.op("Transpose", split, perm=[0, 2, 1, 3])
        if rotates and angles:
            turned = make.op("RotaryEmbedding", turned, *angles, interleaved=interleaved)
        return make.cast(turned, kv_dtype)

    queries = heads(query, count, True)

    def appended(past: ir.Value, rows: ir.Value) -> ir.Value:
        present = make.op("TensorScatter", past, rows, shared.past, axis=2)
        present.type, present.shape = past.type, past.shape
        return present

    keys = appended(past_key, heads(key, kv_count, True))
    values = appended(past_value, heads(value, kv_count, False))
    scale = node.attributes.get_float("scale")
    softcap = node.attributes.get_float("softcap", 0.0)
    if softcap or sink is not None:
        out = _spelled_out(
            make, queries, keys, values, visible, scale, softcap, sink, (count, kv_count)
        )
    else:
        out = make.op("Attention", queries, keys, values, visible, scale=scale)
    out = make.op("Transpose", make.cast(out, ir.DataType.FLOAT), perm=[0, 2, 1, 3])
    rows = make.op("Reshape", out, make.constant([0, 0, count * head_size]))
    for old, new in zip(node.outputs, (rows, keys, values), strict=True):
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        new.name, new.type, new.shape = old.name, old.type, old.shape
    model.graph.remove(node, safe=True)


def _spelled_out(
    make: GraphBuilder,
    queries: ir.Value,
    keys: ir.Value,
    values: ir.Value,
    visible: ir.Value,
    scale: float,
    softcap: float,
    sink: ir.Value | None,
    head_counts: tuple[int, int],
) -> ir.Value:
    """Attention with a soft cap or a sink, which `Attention` lacks or orders by version.

    The query heads of one key head are stacked as rows, so no key is repeated.
    """
    count, kv_count = head_counts
    capacity, head_size = (int(n) for n in keys.shape[2:])
    stacked = make.op("Reshape", queries, make.constant([0, kv_count, -1, head_size]))
    scores = make.op("MatMul", stacked, make.op("Transpose", keys, perm=[0, 1, 3, 2]))
    rows = make.op("Shape", queries, start=2, end=3)
    wide = make.op("Concat", make.constant([0, count]), rows, make.constant([capacity]), axis=0)
    scores = make.op("Reshape", make.cast(scores, ir.DataType.FLOAT), wide)
    scores = make.op("Mul", scores, make.scalar(scale))
    if softcap:
        capped = make.op("Tanh", make.op("Mul", scores, make.scalar(1.0 / softcap)))
        scores = make.op("Mul", capped, make.scalar(softcap))
    scores = make.op("Where", visible, scores, make.scalar(np.finfo(np.float32).min))
    if sink is not None:
        column = make.op("Reshape", sink, make.constant([1, count, 1, 1]))
        size = make.op("Concat", make.constant([1, count]), rows, make.constant([1]), axis=0)
        scores = make.op("Concat", scores, make.op("Expand", column, size), axis=-1)
    weights = make.op("Softmax", scores, axis=-1)
    if sink is not None:
        bounds = [make.constant([n]) for n in (0, capacity, -1)]
        weights = make.op("Slice", weights, *bounds)
    grouped = make.op("Reshape", weights, make.constant([0, kv_count, -1, capacity]))
    out = make.op("MatMul", make.cast(grouped, keys.dtype), values)
    return make.op("Reshape", out, make.op("Shape", queries))
