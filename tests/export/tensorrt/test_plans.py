"""What plans hold of quantized weights, and what the parser makes of a cache's length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from specdec.export.tensorrt.package import half_bytes, widened
from tests.support.graphs import trace_tiny

trt = pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")


def test_plans_that_may_hold_widened_weights(tmp_path: Path) -> None:
    traced = trace_tiny("gpt2", tmp_path)
    assert traced is not None
    assert half_bytes(traced.write("fp16")[0]) is None
    graph = ir.load(traced.write("fp16")[0]).graph
    plain = sum(2 * value.const_value.size for value in graph.initializers.values())
    for precision in ("int8", "int4"):
        half = half_bytes(traced.write(precision)[0])
        assert half is not None
        assert plain <= half <= 1.15 * plain, "scales come on top"
    assert widened("draft", "tensorrt", 99, 100) is None
    assert widened("draft", "tensorrt", 10**9, None) is None
    assert widened("draft", "tensorrt-rtx", 10**9, 100) is None
    told = widened("draft", "tensorrt", 300_000_000, 280_000_000)
    assert told is not None
    assert told.startswith("the draft engine has 300 MB, no less than its weights in FP16 (280 MB)")


class Heard(trt.ILogger):
    """A logger that keeps what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, message: str) -> None:
        self.lines.append(message)


def test_a_length_beside_the_cache_is_dropped_by_the_parser() -> None:
    """Why attention keeps its mask over the capacity: without it, every key would count.

    The day this fails, standard graphs can say `nonpad_kv_seqlen` and read what is cached alone.
    """
    logger = Heard()
    half, whole = onnx.TensorProto.FLOAT16, onnx.TensorProto.INT64
    shapes = {"q": [1, 4, 5, 64], "k": [1, 2, 64, 64], "v": [1, 2, 64, 64]}
    inputs = [onnx.helper.make_tensor_value_info(name, half, s) for name, s in shapes.items()]
    inputs.append(onnx.helper.make_tensor_value_info("length", whole, [1]))
    out = onnx.helper.make_tensor_value_info("out", half, shapes["q"])
    operands = ["q", "k", "v", "", "", "", "length"]
    node = onnx.helper.make_node("Attention", operands, ["out"], is_causal=1)
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "attention", inputs, [out]),
        opset_imports=[onnx.helper.make_opsetid("", 24)],
        ir_version=10,
    )
    onnx.checker.check_model(model)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    assert trt.OnnxParser(network, logger).parse(model.SerializeToString())
    readers = [
        layer.get_input(index).name
        for layer in (network.get_layer(i) for i in range(network.num_layers))
        for index in range(layer.num_inputs)
        if layer.get_input(index) is not None
    ]
    assert "q" in readers
    assert "length" not in readers
