"""The standard form of every in-place architecture against the form ONNX Runtime uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from specdec.engines.engine import Engine
from specdec.runtime import SamplingParams, SpeculativeDecoder
from tests.export.tiny_models import MODELS, VOCABULARY
from tests.support.graphs import Traced, logits, trace_tiny

NOISE = 3e-5
"""Rounding of float32 logits that span about 10."""
HALF_NOISE = 0.04
"""Rounding of FP16 islands in a model of two layers, logits as above."""
CONCATENATED = {
    "bloom", "codegen", "deepseek_v3", "falcon", "falcon-alibi", "falcon-multi-head",
    "falcon-new-decoder", "gpt2-inverse-layer", "gpt_neo", "gptj", "mpt", "nemotron", "stablelm",
}  # fmt: skip
SHORT_CONTEXT = {"phi3-longrope"}
"""Models whose context is shorter than the capacity these graphs are traced with."""
MIXTURES = {"gpt_oss", "qwen3_moe"}
"""Rounding to FP16 can send a token to another expert: single rows may differ by more."""
IDS = np.random.default_rng(3).integers(2, VOCABULARY, (1, 60))


@pytest.fixture(scope="module", params=sorted(MODELS.keys() - CONCATENATED - SHORT_CONTEXT))
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    found = trace_tiny(request.param, tmp_path_factory.mktemp("standard"))
    assert found is not None, "no longer fits the in-place cache"
    return found


def greedy(engine: Engine, num_draft_tokens: int = 0, draft: Engine | None = None) -> list[int]:
    decoder = SpeculativeDecoder(engine, draft, shares_cache=draft is not None)
    params = SamplingParams(max_new_tokens=40, num_draft_tokens=num_draft_tokens, ignore_eos=True)
    return list(decoder.generate(IDS[0, :9].tolist(), params).token_ids)


def test_float32_logits_and_greedy_text_are_those_of_the_original(traced: Traced) -> None:
    original, standard = traced.original(), traced.standard_fp32()
    expected = logits(original, IDS, 60)
    for rows in (60, 1, 5):
        assert np.abs(logits(standard, IDS, rows) - expected).max() < NOISE, rows
    standard.truncate(23)
    again = standard.forward(IDS[:, 23:28], 5)[0]
    assert np.abs(again - expected[23:28]).max() < NOISE
    standard.truncate(0)
    original.truncate(0)
    assert greedy(standard) == greedy(original)


def test_half_precision_stays_near_the_original(
    traced: Traced, request: pytest.FixtureRequest
) -> None:
    original, half = traced.original(), traced.standard("fp16")
    expected = logits(original, IDS, 60)
    level = 0.75 if request.node.callspec.params["traced"] in MIXTURES else 1.0
    for rows in (60, 1, 5):
        worst = np.abs(logits(half, IDS, rows) - expected).max(axis=1)
        assert np.quantile(worst, level) < HALF_NOISE, rows
    half.truncate(23)
    worst = np.abs(half.forward(IDS[:, 23:28], 5)[0] - expected[23:28]).max(axis=1)
    assert np.quantile(worst, level) < HALF_NOISE
    half.truncate(0)
    draft = traced.standard("int8", half)
    plain = greedy(half)
    half.truncate(0)
    assert greedy(half, 4, draft) == plain


def test_standard_operators_alone_and_static_capacity(traced: Traced) -> None:
    graph = ir.load(traced.write("int4")[0])
    assert {node.domain for node in graph.graph} == {""}
    assert graph.opset_imports == {"": 24}
    for value in (*graph.graph.inputs, *graph.graph.outputs):
        symbolic = [i for i, size in enumerate(value.shape) if not isinstance(size, int)]
        dynamic = {"input_ids": [1], "position_ids": [1], "logit_rows": [0], "logits": [1]}
        assert symbolic == dynamic.get(value.name, []), value.name
        if value.name == "logits":
            assert value.dtype == ir.DataType.FLOAT
        elif "past" in value.name or "present" in value.name:
            assert value.dtype == ir.DataType.FLOAT16


def test_a_graph_without_the_in_place_cache_is_refused(tmp_path: Path) -> None:
    from specdec.export.errors import UnsupportedModelError
    from specdec.export.tensorrt.graph import write_standard_graph
    from specdec.export.weights.recipes import find_recipe

    model = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 18}), ir_version=10)
    ir.save(model, tmp_path / "plain.onnx")
    with pytest.raises(UnsupportedModelError, match="use --backend onnxruntime"):
        write_standard_graph(
            tmp_path / "plain.onnx", tmp_path / "out.onnx", find_recipe("fp16", "tensorrt")
        )
