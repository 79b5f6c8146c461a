"""Quantize the weights of a simplified graph, one recipe at a time.

The matrix multiplications are quantized by ONNX Runtime's own quantizers: 8 or 4 bits in blocks
(`MatMulNBits`; round to nearest, k-quant, or half-quadratic: Badri and Shaji, 2023) or 8 bits
with activations quantized as they come (`MatMulInteger`). The output head is one of them. The
embedding table is stored as 8-bit rows, each with its scale.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from specdec.export.editing.model import (
    CONTRIB,
    add_initializer,
    is_token_lookup,
    save_graph,
)
from specdec.export.weights.recipes import Recipe

__all__ = ["quantize", "quantized_graph"]

_ROWS_AT_ONCE = 8192
_ACCURACY_INT8 = 4
"""MatMulNBits accuracy level: multiply in 8-bit integers on a CPU; a GPU does not heed it."""


def quantize(source: Path, out: Path, recipe: Recipe) -> None:
    """Write `source` with its weights quantized.

    Args:
        source: a simplified float32 graph with external data.
        out: the `.onnx` file to write; its weights go beside it in `<name>.data`.
        recipe: a recipe whose method is not "none".
    """
    if recipe.method != "dynamic":
        save_graph(quantized_graph(source, recipe), out)
        return
    with _quiet():
        proto = _dynamic(source, out)
    save_graph(_with_embedding(proto, source), out)


def quantized_graph(source: Path, recipe: Recipe) -> ir.Model:
    """The graph of `source` with its weights quantized in blocks.

    Args:
        source: as for `quantize`; weights that stay are read from its file when needed.
        recipe: a recipe whose method is "rtn", "kquant" or "hqq".
    """
    with _quiet():
        proto = _blocks(source, recipe)
    return _with_embedding(proto, source)


def _with_embedding(proto: onnx.ModelProto, source: Path) -> ir.Model:
    model = ir.from_proto(proto)
    ir.external_data.set_base_dir(model.graph, source.parent)
    _quantize_embedding(model)
    return model


def _dynamic(source: Path, out: Path) -> onnx.ModelProto:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    scratch = out.with_name(f"{out.stem}-dynamic.onnx")
    quantize_dynamic(
        source,
        scratch,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType.QInt8,
        use_external_data_format=True,
        extra_options={"MatMulConstBOnly": True, "WeightSymmetric": True},
    )
    proto = onnx.load(scratch)
    scratch.unlink()
    scratch.with_name(f"{scratch.name}.data").unlink()
    return proto


def _blocks(source: Path, recipe: Recipe) -> onnx.ModelProto:
    """Quantize one product after another, so that one float weight is in memory at a time."""
    proto = onnx.load(source, load_external_data=False)
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    head = _head(proto)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, onnx.TensorProto] = {}
    for node in proto.graph.node:
        weight = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        if weight is None or len(weight.dims) != 2:
            nodes.append(node)
            continue
        done = _product(node, weight, source.parent, recipe, node.name == head)
        nodes += done.node
        constants |= {tensor.name: tensor for tensor in done.initializer}
    read = {name for node in nodes for name in node.input}
    kept = [tensor for name, tensor in (weights | constants).items() if name in read]
    del proto.graph.node[:], proto.graph.initializer[:]
    proto.graph.node.extend(nodes)
    proto.graph.initializer.extend(kept)
    if CONTRIB not in {opset.domain for opset in proto.opset_import}:
        proto.opset_import.append(onnx.helper.make_opsetid(CONTRIB, 1))
    return proto


def _head(proto: onnx.ModelProto) -> str:
    """Name of the matrix multiplication that makes the logits (a scale or cap may follow it)."""
    producers = {output: node for node in proto.graph.node for output in node.output}
    node = producers["logits"]
    while node.op_type != "MatMul":
        node = next(producers[name] for name in node.input if name in producers)
    return str(node.name)


def _load(tensor: onnx.TensorProto, folder: Path) -> None:
    """Let `tensor` hold its data."""
    if onnx.external_data_helper.uses_external_data(tensor):
        onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _product(
    node: onnx.NodeProto, weight: onnx.TensorProto, folder: Path, recipe: Recipe, is_head: bool
) -> onnx.GraphProto:
    """A graph with `node` quantized as the recipe says."""
    rows, columns = weight.dims
    method, bits = recipe.method, recipe.bits
    if is_head or (recipe.mixed and rows > columns):
        method, bits = "rtn", recipe.head_bits
    elif method == "kquant" and -(-rows // recipe.block_size) % 2:
        method = "rtn"  # k-quant packs the zero points of two blocks in a byte
    # The weight is loaded into the model itself: each copy of a large head costs a gigabyte.
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "product", [], [], [weight]))
    _load(model.graph.initializer[0], folder)
    done = _nbits(model, method, bits, recipe.block_size)
    for made in (n for n in done.node if n.op_type == "MatMulNBits"):
        attributes = [a for a in made.attribute if a.name != "accuracy_level"]
        attributes.append(onnx.helper.make_attribute("accuracy_level", _ACCURACY_INT8))
        del made.attribute[:]
        made.attribute.extend(attributes)
    return done


def _nbits(model: onnx.ModelProto, method: str, bits: int, block_size: int) -> onnx.GraphProto:
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits

    if method == "kquant":
        config: Any = nbits.KQuantWeightOnlyQuantConfig()
    elif method == "hqq":
        config = nbits.HQQWeightOnlyQuantConfig(block_size=block_size, bits=bits)
    else:
        config = nbits.DefaultWeightOnlyQuantConfig(
            block_size=block_size, is_symmetric=True, bits=bits
        )
    quantizer = nbits.MatMulNBitsQuantizer(
        model,
        bits=bits,
        block_size=block_size,
        is_symmetric=True,
        algo_config=config,
    )
    quantizer.process()
    graph: onnx.GraphProto = quantizer.model.model.graph
    return graph


def _quantize_embedding(model: ir.Model) -> None:
    """Replace the table that tokens look up by int8 rows and one float scale a row."""
    for node in list(model.graph):
        if not is_token_lookup(node) or len(node.inputs[0].uses()) != 1:
            continue
        table = node.inputs[0]
        rows, scales = _quantized_rows(table.const_value.numpy())
        name = table.name
        quantized = add_initializer(model, f"{name}_int8", rows)
        scale = add_initializer(model, f"{name}_scale", scales)
        ids = node.inputs[1]
        picked = ir.node("Gather", [quantized, ids])
        widened = ir.node("Cast", [picked.outputs[0]], {"to": ir.DataType.FLOAT})
        factors = ir.node("Gather", [scale, ids])
        product = ir.node("Mul", [widened.outputs[0], factors.outputs[0]])
        output = node.outputs[0]
        product.outputs[0].type, product.outputs[0].shape = output.type, output.shape
        model.graph.insert_before(node, [picked, widened, factors, product])
        ir.convenience.replace_all_uses_with(output, product.outputs[0])
        model.graph.remove(node, safe=True)
        del model.graph.initializers[name]


def _quantized_rows(table: Any) -> tuple[Any, Any]:
    """int8 rows and float32 scales [rows, 1] of a float32 table, a part of it in memory at once."""
    rows = np.empty(table.shape, np.int8)
    scales = np.empty((len(table), 1), np.float32)
    for start in range(0, len(table), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        scales[part] = np.abs(table[part]).max(axis=1, keepdims=True) / 127.0
        rows[part] = np.rint(table[part] / np.where(scales[part] == 0, 1, scales[part]))
    return rows, scales


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the quantizers log, warn and print."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)
