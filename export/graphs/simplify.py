"""Make a freshly traced graph small before it is quantized and saved.

The TorchScript exporter writes every shape computation and constant as a node. Around the
attention nodes these have no effect: queries, keys and values are projected as
[batch, rows, heads * head_size], reshaped to heads and straight back. Fewer nodes load faster
and, on few cores, run faster: a 135M model is bound by the number of operators.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

__all__ = ["simplify"]

_ATTENTION = "GroupQueryAttention"
_PASS_THROUGH = {"Add", "MatMul"}


def simplify(model: ir.Model) -> None:
    """Rewrite `model` in place: lift constants, drop reshapes around attention, clean up."""
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    for node in list(model.graph):
        if node.op_type == "Gemm":
            _split_gemm(model, node)
    for node in list(model.graph):
        if node.op_type == _ATTENTION:
            for index in range(3):
                _bypass_input_reshapes(node, index)
            _bypass_output_reshapes(node)
    common.IdentityEliminationPass()(model)
    common.CommonSubexpressionEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)
    _drop_unused_inputs(model)
    common.RemoveUnusedOpsetsPass()(model)
    common.ClearMetadataAndDocStringPass()(model)


def _split_gemm(model: ir.Model, gemm: ir.Node) -> None:
    """Write x @ W + b (GPT-2's `Conv1D`) as MatMul and Add, which the quantizers know."""
    factors = [gemm.attributes.get_float(name, 1.0) for name in ("alpha", "beta")]
    turned = [gemm.attributes.get_int(name, 0) for name in ("transA", "transB")]
    if factors != [1.0, 1.0] or any(turned):
        return
    rows, weight, *bias = gemm.inputs
    nodes = [ir.node("MatMul", [rows, weight])]
    if bias and bias[0] is not None:
        nodes.append(ir.node("Add", [nodes[0].outputs[0], bias[0]]))
    for node in nodes:
        node.outputs[0].type, node.outputs[0].shape = gemm.outputs[0].type, gemm.outputs[0].shape
    model.graph.insert_before(gemm, nodes)
    ir.convenience.replace_all_uses_with(gemm.outputs[0], nodes[-1].outputs[0])
    model.graph.remove(gemm, safe=True)


def _bypass_input_reshapes(node: ir.Node, index: int) -> None:
    """Feed input `index` from before a chain of reshapes whose ends have the same shape.

    The chain's source is a projection [batch, rows, N]; the attention node reads
    [batch, rows, heads * head_size] with the same number of elements, so they are equal.
    """
    value = node.inputs[index]
    while value is not None:
        producer = value.producer()
        if producer is None:
            return
        if producer.op_type in _PASS_THROUGH and producer.domain == "":
            node.replace_input_with(index, value)
            return
        if producer.op_type != "Reshape":
            return
        value = producer.inputs[0]


def _bypass_output_reshapes(node: ir.Node) -> None:
    """Let the output projection read the attention node's output directly."""
    source = node.outputs[0]
    value = source
    while True:
        uses = list(value.uses())
        if len(uses) != 1:
            return
        consumer = uses[0].node
        if consumer.op_type == "Reshape":
            value = consumer.outputs[0]
            continue
        if consumer.op_type == "MatMul" and uses[0].idx == 0 and value is not source:
            consumer.replace_input_with(0, source)
        return


def _drop_unused_inputs(model: ir.Model) -> None:
    """Remove graph inputs that nothing reads (position_ids, once rotation is folded)."""
    kept = [value for value in model.graph.inputs if value.uses()]
    model.graph.inputs[:] = kept
