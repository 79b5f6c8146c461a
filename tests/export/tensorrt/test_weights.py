"""Quantized weights: error bounds, edge cases, and the graph computes with exactly these values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.export.editing.model import add_initializer, is_token_lookup
from specdec.export.errors import ExportOptionError
from specdec.export.tensorrt.graph import write_standard_graph
from specdec.export.tensorrt.package import _precisions
from specdec.export.tensorrt.weights import (
    dequantized,
    lower_precision,
    quantized_blocks,
    quantized_columns,
)
from specdec.export.weights.recipes import find_recipe
from tests.support.graphs import logits, trace_tiny

IDS = np.random.default_rng(3).integers(2, 332, (1, 30))


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.01, 1.0, 300.0]))
def test_errors_stay_below_half_a_step(seed: int, size: float) -> None:
    weights = (size * np.random.default_rng(seed).standard_normal((128, 6))).astype(np.float32)
    levels, scales = quantized_columns(weights)
    assert np.abs(levels).max() <= 127
    step = scales.astype(np.float32)
    assert (np.abs(dequantized(levels, scales) - weights) <= 0.6 * step).all()
    levels, scales = quantized_blocks(weights, 64)
    assert levels.min() >= -8
    assert levels.max() <= 7
    assert scales.shape == (2, 6)
    step = np.repeat(np.abs(scales.astype(np.float32)), 64, axis=0)
    # The side away from the block's largest weight ends at 7 steps, one short of its size.
    assert (np.abs(dequantized(levels, scales) - weights) <= 1.1 * step).all()


def test_values_on_the_grid_are_exact() -> None:
    grid = np.arange(-8, 8, dtype=np.float32)
    weights = np.stack([np.tile(grid, 4) * 0.5, np.tile(-grid, 4) * 2.0], axis=1)
    assert np.array_equal(dequantized(*quantized_blocks(weights, 16)), weights)
    weights = np.linspace(-127, 127, 255, dtype=np.float32)[:, None] * 0.25
    assert np.array_equal(dequantized(*quantized_columns(weights)), weights)


def test_zeros_and_tiny_weights_stay_finite() -> None:
    for array in (np.zeros((64, 2), np.float32), np.full((64, 2), 1e-12, np.float32)):
        for levels, scales in (quantized_columns(array), quantized_blocks(array, 32)):
            assert (scales != 0).all()
            assert np.abs(dequantized(levels, scales)).max() < 1e-6


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_the_graph_computes_with_the_dequantized_weights(precision: str, tmp_path: Path) -> None:
    traced = trace_tiny("llama", tmp_path)
    assert traced is not None
    engine = traced.standard(precision)
    graph = ir.load(traced.plain)
    quantized = 0
    for node in graph.graph:
        if node.op_type != "MatMul" or not node.inputs[1].is_initializer():
            continue
        weights = node.inputs[1].const_value.numpy()
        blocks = precision == "int4" and weights.shape[0] % 64 == 0
        parts = quantized_blocks(weights, 64) if blocks else quantized_columns(weights)
        node.inputs[1].const_value = ir.tensor(dequantized(*parts), name=node.inputs[1].name)
        quantized += 1
    assert quantized == 2 * 5 + 1
    ir.save(graph, traced.plain, external_data="plain.onnx.data")
    expected = logits(traced.original(), IDS, 30)
    assert np.abs(logits(engine, IDS, 5) - expected).max() < 0.04


def test_weights_are_stored_in_their_bits(tmp_path: Path) -> None:
    traced = trace_tiny("llama", tmp_path)
    assert traced is not None
    found = {}
    for precision in ("fp16", "int8", "int4"):
        graph = ir.load(traced.write(precision)[0])
        head = next(n for n in reversed(list(graph.graph)) if n.op_type == "MatMul")
        weight = head.inputs[1]
        if weight.producer() is not None:
            assert weight.producer().op_type == "DequantizeLinear"
            weight = weight.producer().inputs[0]
        found[precision] = weight.const_value.dtype.name
        assert head.inputs[0].dtype == ir.DataType.FLOAT16
    assert found == {"fp16": "FLOAT16", "int8": "INT8", "int4": "INT4"}


def test_a_weight_beyond_half_precision_stays_float32() -> None:
    weights = np.ones((8, 8), np.float32)
    weights[3, 3] = 70000.0
    rows = ir.Value(name="x", shape=ir.Shape((1, 8)), type=ir.TensorType(ir.DataType.FLOAT))
    graph = ir.Graph([rows], [], nodes=[], opset_imports={"": 24})
    model = ir.Model(graph, ir_version=10)
    product = ir.node("MatMul", [rows, add_initializer(model, "huge", weights)])
    graph.append(product)
    product.outputs[0].name = "y"
    graph.outputs.append(product.outputs[0])
    assert lower_precision(model, find_recipe("fp16", "tensorrt"), {}) == ["huge"]
    assert graph.initializers["huge"].const_value.dtype == ir.DataType.FLOAT


def test_an_embedding_beyond_half_precision_stays_float32(tmp_path: Path) -> None:
    traced = trace_tiny("llama", tmp_path)
    assert traced is not None
    model = ir.load(traced.plain)
    name = next(n.inputs[0].name for n in model.graph if is_token_lookup(n))
    table = model.graph.initializers[name]
    array = table.const_value.numpy().copy()
    array[331, 0] = 70000.0
    table.const_value = ir.tensor(array, name=name)
    (tmp_path / "large").mkdir()
    plain = tmp_path / "large" / "plain.onnx"
    ir.save(model, plain, external_data="plain.onnx.data")
    out = tmp_path / "large" / "out.onnx"
    assert write_standard_graph(plain, out, find_recipe("fp16", "tensorrt")) == [name]
    stored = ir.load(out).graph.initializers[name].const_value
    assert stored.dtype == ir.DataType.FLOAT
    assert np.array_equal(stored.numpy(), array)
    assert _precisions(out)["embedding"] == "fp32"
    assert _precisions(traced.write("fp16")[0])["embedding"] == "fp16"


def test_precisions_of_the_backends() -> None:
    assert find_recipe("int4", "tensorrt").name == "int4-weights"
    assert find_recipe("int4").name == "int4-rtn"
    with pytest.raises(
        ExportOptionError, match="not known for tensorrt; allowed are fp16, int8, int8-qdq, int4"
    ):
        find_recipe("int4-hqq", "tensorrt")
