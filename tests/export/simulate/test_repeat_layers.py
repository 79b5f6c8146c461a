"""Engines deepened and widened in the file compute what the enlarged model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("optimum.exporters.onnx", reason="exports for real")

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specdec.engines import load_package
from specdec.export import SilentProgress
from specdec.export.engine_graphs import trace_graph, write_engine
from specdec.export.simulate.package import SimulatedPair, write_simulated_package
from specdec.export.simulate.repeat_layers import repeat_layers
from specdec.export.simulate.widen_vocabulary import widen_vocabulary
from specdec.export.weights.recipes import find_recipe

onnxruntime = pytest.importorskip("onnxruntime")
NARROW, WIDE, LAYERS, LENGTH = 101, 250, 5, 32


def llama(layers: int, vocab: int) -> Any:
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=True,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


def enlarged(small: Any) -> Any:
    """The model that the two rewrites promise: each link is (feed-forward 0, attention 1)."""
    large = llama(LAYERS, WIDE)
    source, target = small.model.layers, large.model.layers
    for index, layer in enumerate(target):
        attention, feed_forward = min(index, 1), int(index == LAYERS - 1)
        layer.self_attn.load_state_dict(source[attention].self_attn.state_dict())
        layer.input_layernorm.load_state_dict(source[attention].input_layernorm.state_dict())
        layer.mlp.load_state_dict(source[feed_forward].mlp.state_dict())
        norm = source[feed_forward].post_attention_layernorm
        layer.post_attention_layernorm.load_state_dict(norm.state_dict())
    large.model.norm.load_state_dict(small.model.norm.state_dict())
    rows = small.get_input_embeddings().weight[torch.arange(WIDE) % NARROW]
    shrunk = rows * torch.linspace(1.0, 0.5, WIDE)[:, None]
    with torch.no_grad():
        large.get_input_embeddings().weight.copy_(shrunk)
    return large


def logits(graph: Path, layers: int) -> np.ndarray:
    """Logits of six rows through an in-place FP32 engine."""
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    feeds: dict[str, np.ndarray] = {
        "input_ids": np.array([[3, 7, 240 % NARROW, 1, 99, 20]]),
        "seqlens_k": np.array([5], np.int32),
        "total_sequence_length": np.array([6], np.int32),
        "logit_rows": np.arange(6),
    }
    for layer in range(layers):
        for part in ("key", "value"):
            feeds[f"past_key_values.{layer}.{part}"] = np.zeros((1, 2, LENGTH, 16), np.float32)
    assert set(feeds) == {node.name for node in session.get_inputs()}
    presents = {f"present.{layer}.{part}" for layer in range(layers) for part in ("key", "value")}
    assert presents | {"logits"} == {node.name for node in session.get_outputs()}
    scores: np.ndarray = session.run(["logits"], feeds)[0]
    return scores


def test_a_repeated_engine_is_the_deeper_and_wider_model(tmp_path: Path) -> None:
    small = llama(2, NARROW)
    torch.nn.init.normal_(small.model.layers[1].input_layernorm.weight, 1.0, 0.3)
    plain = trace_graph(small, "in_place", LENGTH, tmp_path)
    graph = tmp_path / "engine.onnx"
    write_engine(plain, graph, find_recipe("fp32"))
    size = graph.with_name("engine.onnx.data").stat().st_size
    repeat_layers(graph, LAYERS)
    assert graph.with_name("engine.onnx.data").stat().st_size == size
    widen_vocabulary(graph, NARROW, WIDE)

    found = logits(graph, LAYERS)

    (tmp_path / "large").mkdir()
    whole = trace_graph(enlarged(small), "in_place", LENGTH, tmp_path / "large")
    expected = logits(whole, LAYERS)
    assert found.shape == expected.shape == (1, 6, WIDE)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert np.ptp(expected) > 0.1


@pytest.mark.parametrize("precision", ["int8", "int4", "int8-dynamic"])
def test_quantized_engines_repeat_too(tmp_path: Path, precision: str) -> None:
    pair = SimulatedPair("4M", "none", target_precision=precision, max_length=32)
    write_simulated_package(pair, tmp_path, SilentProgress())
    with load_package(tmp_path, num_threads=1) as package:
        assert package.manifest.draft is None
        assert package.draft is None
        assert package.target.info.num_layers > 10
        assert package.target.info.logits_width == 4096
        scores = package.target.forward(np.array([[5, 6, 4095]]), 3)
    assert np.isfinite(scores).all()
    assert scores.std() > 0.05
