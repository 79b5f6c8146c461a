"""Scales of activations: their values, what is run to find them, and the graph that uses them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from specdec.export.calibration.ranges import _Seen, calibrate
from specdec.export.calibration.scales import (
    ActivationScale,
    choose_scale,
    relative_error,
    smoothing,
)
from specdec.export.editing.model import add_initializer
from specdec.export.errors import UnsupportedModelError
from specdec.export.progress import SilentProgress
from specdec.export.tensorrt.graph import write_standard_graph
from specdec.export.tensorrt.weights import dequantized, lower_precision, quantized_columns
from specdec.export.weights.recipes import find_recipe
from tests.support.graphs import Traced, logits, trace_tiny

IDS = np.random.default_rng(3).integers(2, 332, (1, 60))


def rows_of(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_the_step_lets_the_largest_value_through() -> None:
    rows = np.array([[127.0, -3.0], [64.0, 1.0]], np.float32) * 0.5
    even = np.array([1.0, 1.0], np.float32)
    scale = choose_scale(np.array([63.5, 63.5], np.float32), rows, even)
    assert scale is not None
    assert scale.smoothing == pytest.approx(63.5**0.7)
    assert scale.step == pytest.approx(63.5**0.3 / 127, rel=1e-3)
    assert scale.step == float(np.float16(scale.step))


def test_errors_are_relative_to_their_row() -> None:
    rows = np.array([[3.0, 4.0], [30.4, 40.0], [0.0, 0.0]], np.float32)
    assert relative_error(rows, 1.0) == pytest.approx(np.sqrt(0.16 / (30.4**2 + 1600) / 3))
    assert relative_error(np.array([[500.0]], np.float32), 1.0) == pytest.approx(373 / 500)


def test_a_giant_token_keeps_its_tensor_in_half_precision() -> None:
    rows, even = rows_of(200, 64), np.ones(64, np.float32)
    assert choose_scale(np.abs(rows).max(0), rows, even) is not None
    rows[7, 3] = 40000.0
    assert choose_scale(np.abs(rows).max(0), rows, even) is None


def test_steps_are_never_zero() -> None:
    for rows in (np.zeros((3, 4), np.float32), rows_of(3, 4) * 1e-30):
        scale = choose_scale(np.abs(rows).max(0), rows, np.zeros(4, np.float32))
        assert scale is not None
        assert scale.step >= 2.0**-14


def test_smoothing_evens_the_channels_out() -> None:
    largest = np.array([100.0, 1.0, 1.0, 0.0], np.float32)
    weights = np.array([1.0, 1.0, 0.25, 1.0], np.float32)
    found = smoothing(largest, weights)
    assert found[:3] == pytest.approx([100**0.7, 1.0, 0.25**-0.3])
    assert found[3] == pytest.approx(0.01**0.7), "an unseen channel counts as a small one"
    assert np.array_equal(smoothing(0 * largest, weights), np.ones(4))


def test_a_product_of_smoothed_parts_is_more_exact_than_of_plain_ones() -> None:
    rows = rows_of(64, 48) * np.where(np.arange(48) == 5, 80.0, 1.0).astype(np.float32)
    weights = rows_of(48, 24, seed=1)
    scale = choose_scale(np.abs(rows).max(0), rows, np.abs(weights).max(1))
    assert scale is not None
    assert scale.smoothing[5] > 10 * np.delete(scale.smoothing, 5).max()
    plain = ActivationScale(float(np.abs(rows).max() / 127), np.ones(48, np.float32))

    def error(s: ActivationScale) -> float:
        x = np.rint(rows / s.smoothing / s.step).clip(-128, 127) * s.step
        w = dequantized(*quantized_columns(weights * s.smoothing[:, None]))
        return float(np.square(x @ w - rows @ weights).mean())

    assert error(scale) < 0.25 * error(plain)


def test_the_nodes_of_one_product_compute_the_formula() -> None:
    """y = DQ(Q(x / s)) @ DQ(Q(s * W)), by ONNX Runtime against NumPy."""
    import onnxruntime

    rows, weights = rows_of(5, 16), rows_of(16, 8, seed=1)
    scale = ActivationScale(float(np.float16(0.02)), np.linspace(0.5, 2, 16, dtype=np.float32))
    x = ir.Value(name="x", shape=ir.Shape((5, 16)), type=ir.TensorType(ir.DataType.FLOAT))
    graph = ir.Graph([x], [], nodes=[], opset_imports={"": 21})
    model = ir.Model(graph, ir_version=10)
    for name in ("gate", "up"):  # two products of one tensor
        node = ir.node("MatMul", [x, add_initializer(model, name, weights)])
        graph.append(node)
        node.outputs[0].name = f"{name}.out"
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        graph.outputs.append(node.outputs[0])
    assert lower_precision(model, find_recipe("int8-qdq", "tensorrt"), {"x": scale}) == []
    kinds = [node.op_type for node in graph]
    assert kinds.count("QuantizeLinear") == 1, "quantized once for both"
    assert kinds.count("DequantizeLinear") == 3
    quantize = next(node for node in graph if node.op_type == "QuantizeLinear")
    step, zero = (value.const_value for value in quantize.inputs[1:])
    assert (step.dtype, float(step.numpy())) == (ir.DataType.FLOAT16, scale.step)
    assert (zero.dtype, int(zero.numpy())) == (ir.DataType.INT8, 0)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    found = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, {"x": rows})
    left = (rows / scale.smoothing).astype(np.float16).astype(np.float32)
    left = np.rint(left / scale.step).clip(-128, 127) * scale.step
    right = dequantized(*quantized_columns(weights * scale.smoothing[:, None]))
    for result in found:
        assert np.abs(result - left @ right).max() < 0.02
        assert np.abs(result - rows @ weights).max() < 1.0


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    found = trace_tiny("llama", tmp_path_factory.mktemp("calibration"))
    assert found is not None
    return found


def run_calibration(traced: Traced, samples: list[list[int]]) -> dict[str, ActivationScale | None]:
    return calibrate(traced.plain, samples, traced.entry.vocab_size, SilentProgress(), 1)


def test_every_product_but_the_head_is_calibrated_and_passes_do_not_matter(llama: Traced) -> None:
    sample = IDS[0].tolist() + IDS[0, ::-1].tolist()  # longer than a pass and than the capacity
    scales = run_calibration(llama, [sample])
    assert len(scales) == 2 * 4  # packed projections; output; gate and up; down
    windows = run_calibration(llama, [sample[:96], sample[96:]])
    assert None not in scales.values()
    for name, scale in scales.items():
        assert windows[name].step == scale.step
        assert np.array_equal(windows[name].smoothing, scale.smoothing)
    beyond = run_calibration(llama, [[9999, *sample, 9999]])
    assert beyond.keys() == scales.keys()
    names = {path.name for path in llama.plain.parent.iterdir()}
    assert "calibration.onnx" not in names


def test_the_largest_channel_is_that_of_the_graph(llama: Traced) -> None:
    """Divisors against the embedding's own rows, which the first norm scales."""
    import torch

    from tests.export.tiny_models import make_model

    model = make_model("llama")
    seen: list[np.ndarray] = []
    layer = model.model.layers[0].self_attn.q_proj
    hook = layer.register_forward_pre_hook(lambda _, args: seen.append(args[0].numpy()))
    with torch.no_grad():
        model(input_ids=torch.tensor(IDS))
    hook.remove()
    attention = model.model.layers[0].self_attn
    parts = [getattr(attention, f"{name}_proj").weight.detach().numpy() for name in "qkv"]
    weights = np.abs(np.concatenate(parts)).max(axis=0)
    expected = smoothing(np.abs(seen[0][0]).max(axis=0), weights)
    first = next(iter(run_calibration(llama, [IDS[0].tolist()]).values()))
    assert first.smoothing == pytest.approx(expected, rel=1e-4)


def test_what_experts_chose_is_kept_as_few_rows_of_its_own() -> None:
    """Passes of 64 tokens of which an expert sees 3: neither the passes nor all rows are held."""
    seen, kept = _Seen(), np.arange(64) % 8 == 0
    rows = rows_of(3, 16)
    for number in range(600):
        seen.add(rows + np.float32(number), kept)
    assert sum(map(len, seen.rows)) == 256
    assert all(part.base is None for part in seen.rows)
    assert np.array_equal(seen.rows[7], rows[:1] + np.float32(7))
    assert np.array_equal(seen.largest, np.abs(rows + np.float32(599)).max(axis=0))
    whole = _Seen()
    whole.add(rows_of(64, 16), kept)
    assert np.array_equal(whole.rows[0], rows_of(64, 16)[::8])


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "phi3"])
def test_the_quantized_graph_stays_near_the_original(name: str, tmp_path: Path) -> None:
    traced = trace_tiny(name, tmp_path)
    assert traced is not None
    expected = logits(traced.original(), IDS, 60)
    engine = traced.standard("int8-qdq")
    found = logits(engine, IDS, 60)
    assert (found.argmax(1) == expected.argmax(1)).mean() > 0.8
    assert np.abs(found - expected).max() < 0.15 * np.ptp(expected)
    for rows in (1, 5):  # static scales: a row does not depend on its neighbours
        assert np.abs(logits(engine, IDS, rows) - found).max() < 0.04
    graph = ir.load(traced.write("int8-qdq")[0])
    kinds = [node.op_type for node in graph.graph]
    scales = list(traced.calibrate().values())
    assert kinds.count("QuantizeLinear") == 8 - scales.count(None) >= 6
    products = [node for node in graph.graph if node.op_type == "MatMul"]
    weights = [node.inputs[1].producer() for node in products]
    assert {w.inputs[0].dtype for w in weights if w is not None} >= {ir.DataType.INT8}
    assert products[-1].inputs[0].producer().op_type == "Cast", "the head's rows stay FP16"


def test_a_graph_without_the_in_place_cache_is_refused(tmp_path: Path) -> None:
    model = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 18}), ir_version=10)
    ir.save(model, tmp_path / "plain.onnx")
    with pytest.raises(UnsupportedModelError, match="use --backend onnxruntime"):
        calibrate(tmp_path / "plain.onnx", [[1, 2]], 9, SilentProgress())
    with pytest.raises(UnsupportedModelError, match="use --backend onnxruntime"):
        write_standard_graph(
            tmp_path / "plain.onnx", tmp_path / "out.onnx", find_recipe("int8-qdq", "tensorrt"), {}
        )
