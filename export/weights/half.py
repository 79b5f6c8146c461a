"""Convert nodes of a float32 graph to FP16 arithmetic.

Every node becomes an island: what flows in is cast to FP16, what flows out is cast back, and its
constants are stored in FP16. Casts between two islands that touch cancel
(`cancel_casts`), exactly: FP32 holds every FP16 number.
"""

from __future__ import annotations

import functools

import numpy as np
import onnx_ir as ir

from specdec.export.editing.builder import GraphBuilder
from specdec.export.weights.store import fits_half

__all__ = ["FP16", "beyond_half", "cancel_casts", "compute_in_half", "drop_unused", "half_weight"]

FP16 = ir.DataType.FLOAT16
_FP32 = ir.DataType.FLOAT


def compute_in_half(model: ir.Model, node: ir.Node) -> None:
    """Make `node` an island, in place; its values' types are stated (`state_types`).

    FP16 holds its constants (`beyond_half` is empty).

    A graph input that it reads becomes FP16 itself, and so does a graph output that it writes,
    but for the logits: those are the buffers of the cache.
    """
    make = GraphBuilder(model, before=node)
    for index, value in enumerate(node.inputs):
        if value is None or value.dtype != _FP32:
            continue
        if value.is_initializer():
            node.replace_input_with(index, half_weight(model, value))
            drop_unused(model, value)
        elif value.is_graph_input():
            value.type = ir.TensorType(FP16)
        else:
            node.replace_input_with(index, make.cast(value, FP16))
    for output in node.outputs:
        if output.dtype != _FP32:
            continue
        if output.is_graph_output() and output.name != "logits":
            output.type = ir.TensorType(FP16)
        else:
            _cast_back(model, node, output)


def _cast_back(model: ir.Model, node: ir.Node, output: ir.Value) -> None:
    """Give all readers of `output`, except those of its shape, a float32 copy of its name."""
    uses = [use for use in output.uses() if use.node.op_type != "Shape"]
    cast = ir.node("Cast", [output], {"to": _FP32})
    model.graph.insert_after(node, cast)
    wide = cast.outputs[0]
    wide.type, wide.shape = output.type, output.shape
    output.type = ir.TensorType(FP16)
    for use in uses:
        use.node.replace_input_with(use.idx, wide)
    name, output.name = output.name, f"{output.name}.fp16"
    wide.name = name
    for index, value in enumerate(model.graph.outputs):
        if value is output:
            model.graph.outputs[index] = wide


def half_weight(model: ir.Model, weight: ir.Value) -> ir.Value:
    """The initializer `weight` in FP16, one for all who ask, converted when the graph is saved."""
    name = f"{weight.name}.fp16"
    known = model.graph.initializers.get(name)
    if known is not None:
        return known
    source = weight.const_value
    lazy = ir.LazyTensor(
        functools.partial(_converted, source), dtype=FP16, shape=source.shape, name=name
    )
    value = ir.Value(name=name, shape=lazy.shape, type=ir.TensorType(FP16), const_value=lazy)
    model.graph.register_initializer(value)
    return value


def _converted(source: ir.TensorProtocol) -> ir.Tensor:
    return ir.tensor(source.numpy().astype(np.float16))


def beyond_half(node: ir.Node) -> list[str]:
    """Names of the float32 constants of `node` with a value that FP16 cannot hold."""
    constants = [v for v in node.inputs if v is not None and v.is_initializer()]
    return [str(v.name) for v in constants if v.dtype == _FP32 and not fits_half(v)]


def drop_unused(model: ir.Model, weight: ir.Value) -> None:
    """Remove an initializer that nothing reads any more."""
    if not weight.uses():
        model.graph.initializers.pop(weight.name, None)


def cancel_casts(model: ir.Model) -> None:
    """Remove casts to the type a value has already, and pairs FP16 -> FP32 -> FP16, in place."""
    for node in list(model.graph):
        if node.op_type != "Cast":
            continue
        wanted, value = node.outputs[0].dtype, node.inputs[0]
        producer = value.producer()
        if value.dtype == wanted:
            source = value
        elif wanted == FP16 and producer is not None and producer.op_type == "Cast":
            source = producer.inputs[0]
            if source.dtype != FP16 or value.dtype != _FP32:
                continue
        else:
            continue
        if node.outputs[0].is_graph_output():
            continue
        ir.convenience.replace_all_uses_with(node.outputs[0], source)
        model.graph.remove(node, safe=True)
