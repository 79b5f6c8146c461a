"""What the CUDA provider is given: right numbers, FP16 where it pays, nothing for the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from specdec.engines.engine import Engine
from specdec.export.cuda.graph import half_nodes
from specdec.export.cuda.operators import check_placement, unplaced
from specdec.export.editing.dtypes import state_types
from specdec.export.editing.model import add_initializer
from specdec.export.engine_graphs import write_engine
from specdec.export.errors import UnsupportedModelError
from specdec.export.weights.recipes import CUDA_RECIPES, find_recipe
from specdec.runtime import SamplingParams, SpeculativeDecoder
from tests.export.tiny_models import VOCABULARY
from tests.support.graphs import Traced, logits, trace_tiny

HALF_NOISE = 0.03
"""Rounding of FP16 products in models of two layers; logits span about 10."""
MIXTURES = {"gpt_oss", "qwen3_moe"}
"""Rounding to FP16 can send a token to another expert: single rows may differ by more."""
MODELS = (
    *("llama", "llama-tied", "qwen2", "qwen3", "gemma2", "gemma3_text", "gpt_oss", "qwen3_moe"),
    *("gpt2", "phi3", "opt", "glm", "olmo"),
)
IDS = np.random.default_rng(3).integers(2, VOCABULARY, (1, 60))
FP16, FP32 = ir.DataType.FLOAT16, ir.DataType.FLOAT


@pytest.fixture(scope="module", params=MODELS)
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    found = trace_tiny(request.param, tmp_path_factory.mktemp("cuda"))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    found = trace_tiny("llama", tmp_path_factory.mktemp("cuda-llama"))
    assert found is not None
    return found


def greedy(engine: Engine, num_draft_tokens: int = 0, draft: Engine | None = None) -> list[int]:
    engine.truncate(0)
    decoder = SpeculativeDecoder(engine, draft, shares_cache=draft is not None)
    params = SamplingParams(max_new_tokens=40, num_draft_tokens=num_draft_tokens, ignore_eos=True)
    return list(decoder.generate(IDS[0, :9].tolist(), params).token_ids)


def read(path: Path) -> ir.Model:
    """A written graph with its types."""
    model = ir.load(path)
    state_types(model)
    return model


def test_logits_and_greedy_text_of_a_pair(traced: Traced, request: pytest.FixtureRequest) -> None:
    original, half = traced.original(), traced.cuda("fp16")
    expected = logits(original, IDS, 60)
    level = 0.75 if request.node.callspec.params["traced"] in MIXTURES else 1.0
    for rows in (60, 1, 5):
        worst = np.abs(logits(half, IDS, rows) - expected).max(axis=1)
        assert np.quantile(worst, level) < HALF_NOISE, rows
        assert worst.max() > 0, "FP16 leaves a trace, or this is not FP16"
    half.truncate(23)
    worst = np.abs(half.forward(IDS[:, 23:28], 5)[0] - expected[23:28]).max(axis=1)
    assert np.quantile(worst, level) < HALF_NOISE
    plain = greedy(half)
    assert len(set(plain)) > 4
    for precision in ("int8", "int4"):
        assert greedy(half, 4, traced.cuda(precision, half)) == plain, precision


def test_every_operator_has_a_kernel_and_its_types(traced: Traced) -> None:
    for precision in ("fp16", "int8", "int4"):
        plain, written = ir.load(traced.plain), read(traced.write_cuda(precision)[0])
        assert list(unplaced(written)) == []
        for side in ("inputs", "outputs"):
            values = getattr(written.graph, side)
            assert [v.name for v in values] == [v.name for v in getattr(plain.graph, side)]
            for value in values:
                if "past" in value.name or "present" in value.name:
                    assert value.dtype == FP16
                elif value.name == "logits":
                    assert value.dtype == FP32
        for node in written.graph:
            if node.op_type in ("GroupQueryAttention", "MatMulNBits", "FusedMatMul", "Gemm"):
                assert {v.dtype for v in node.inputs if v is not None} & {FP16, FP32} == {FP16}
            elif node.op_type == "MatMul" and node.inputs[1].is_initializer():
                assert [v.dtype for v in node.inputs] == [FP16, FP16]


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "phi3"])
def test_a_layer_has_four_casts(name: str, tmp_path: Path) -> None:
    """Two on its way into products, two back; and three for the embedding and the head."""
    found = trace_tiny(name, tmp_path)
    assert found is not None
    for precision in ("fp16", "int8", "int4"):
        kinds = Counter(node.op_type for node in ir.load(found.write_cuda(precision)[0]).graph)
        assert kinds["Cast"] == 4 * 2 + 3, precision
        if name in ("llama", "qwen2"):
            assert kinds["Shape"] == 0, "a Llama computes no shapes"


def multiply_as_written(path: Path) -> None:
    """Let a CPU multiply as a GPU does, in the type of the rows, not in 8-bit integers."""
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("name", sorted(n for n, r in CUDA_RECIPES.items() if r.bits < 16))
def test_quantized_products_compute_with_their_blocks(name: str, llama: Traced) -> None:
    """The same blocks in FP32 differ by no more than FP16 rounding."""
    path, entry = llama.write_cuda(name)
    products = [node for node in ir.load(path).graph if node.op_type == "MatMulNBits"]
    assert len(products) == 2 * 5 + 1
    for node in products:
        blocks, scales, *zeros = node.inputs[1:]
        assert blocks.const_value.dtype == ir.DataType.UINT8
        assert scales.const_value.dtype == FP16
        assert [z.const_value.dtype for z in zeros if z is not None] in ([], [ir.DataType.UINT8])
        assert node.attributes.get_int("bits") in (4, 8)
        assert node.attributes.get_int("block_size") in (32, 64, 128)
    head = products[-1]
    assert (head.attributes.get_int("N"), head.attributes.get_int("bits")) == (
        entry.logits_width,
        find_recipe(name, device="cuda").head_bits,
    )
    wide = path.with_name("wide.onnx")
    write_engine(llama.plain, wide, find_recipe(name))
    for graph in (path, wide):
        multiply_as_written(graph)
    expected = logits(llama._load(wide, llama.entry), IDS, 60)
    assert np.abs(logits(llama._load(path, entry), IDS, 5) - expected).max() < HALF_NOISE


def test_a_tied_head_multiplies_by_the_embedding_itself(tmp_path: Path) -> None:
    found = trace_tiny("llama-tied", tmp_path)
    assert found is not None
    graph = ir.load(found.write_cuda("fp16")[0]).graph
    head = next(node for node in graph if node.op_type == "FusedMatMul")
    readers = sorted(use.node.op_type for use in head.inputs[1].uses())
    assert readers == ["FusedMatMul", "Gather"]
    assert [v.name for v in graph.initializers.values() if 340 in v.shape] == [head.inputs[1].name]


def test_a_weight_beyond_fp16_stays_float32(llama: Traced, tmp_path: Path) -> None:
    model = ir.load(llama.plain)
    weight = model.graph.initializers["model.layers.1.mlp.up_proj.weight.transposed"]
    array = weight.const_value.numpy().copy()
    array[3, 5] = 70_000.0
    weight.const_value = ir.tensor(array, name=weight.name)
    ir.save(model, tmp_path / "plain.onnx", external_data="plain.onnx.data")
    found = Traced(tmp_path / "plain.onnx", llama.entry)
    out = tmp_path / "out.onnx"
    assert write_engine(found.plain, out, find_recipe("fp16", device="cuda")) == [weight.name]
    entry = replace(llama.entry, kv_dtype="float16", compute="fp16")
    half = logits(found._load(out, entry), IDS, 60)
    difference = np.abs(half - logits(found.original(), IDS, 60)).max(axis=1)
    assert np.isfinite(half).all()
    assert np.quantile(difference, 0.5) < HALF_NOISE


def altered(traced: Traced, name: str, change: Callable[[np.ndarray], None], to: Path) -> Path:
    """A copy of the traced graph in which `change` was applied to one constant."""
    model = ir.load(traced.plain)
    value = model.graph.initializers[name]
    array = value.const_value.numpy().copy()
    change(array)
    value.const_value = ir.tensor(array, name=name)
    to.mkdir()
    ir.save(model, to / "plain.onnx", external_data="plain.onnx.data")
    return to / "plain.onnx"


@pytest.mark.parametrize(("largest", "kept"), [(65504.0, []), (65536.0, ["bias"])])
def test_a_bias_beyond_fp16_keeps_its_product_float32(largest: float, kept: list[str]) -> None:
    rows = ir.Value(name="x", shape=ir.Shape((1, 8)), type=ir.TensorType(FP32))
    graph = ir.Graph([rows], [], nodes=[], opset_imports={"": 18})
    model = ir.Model(graph, ir_version=10)
    weight = add_initializer(model, "weight", np.ones((8, 4), np.float32))
    bias = add_initializer(model, "bias", np.array([0, -largest, 1, 2], np.float32))
    product = ir.node("Gemm", [rows, weight, bias])
    graph.append(product)
    graph.outputs.append(product.outputs[0])
    state_types(model)
    found: list[str] = []
    assert half_nodes(model, found) == ([] if kept else [product])
    assert found == kept


def test_attention_with_a_sink_beyond_fp16_is_refused(tmp_path: Path) -> None:
    found = trace_tiny("gpt_oss", tmp_path)
    assert found is not None
    attention = next(n for n in ir.load(found.plain).graph if n.op_type == "GroupQueryAttention")
    sink = attention.inputs[11].name
    assert sink is not None
    plain = altered(found, sink, lambda array: array.fill(-1e5), tmp_path / "large")
    with pytest.raises(UnsupportedModelError, match="GroupQueryAttention of FLOAT"):
        write_engine(plain, tmp_path / "out.onnx", find_recipe("fp16", device="cuda"))
    assert not (tmp_path / "out.onnx").exists()


def test_an_activation_between_products_survives_large_rows(tmp_path: Path) -> None:
    """GELU cubes its input, which leaves FP16's range from 41 on, and still is x or 0 there."""
    found = trace_tiny("gpt2", tmp_path)
    assert found is not None
    model = ir.load(found.plain)
    bias = model.graph.initializers["transformer.h.0.mlp.c_fc.bias"]
    array = np.where(np.arange(bias.shape[0]) % 2, 300.0, -300.0).astype(np.float32)
    bias.const_value = ir.tensor(array, name=bias.name)
    (tmp_path / "large").mkdir()
    ir.save(model, tmp_path / "large" / "plain.onnx", external_data="plain.onnx.data")
    large = Traced(tmp_path / "large" / "plain.onnx", found.entry)
    expected = logits(large.original(), IDS, 60)
    assert np.abs(logits(large.cuda("fp16"), IDS, 60) - expected).max() < 3 * HALF_NOISE
    assert np.abs(expected - logits(found.original(), IDS, 60)).max() > 1, "it matters"


def test_an_operator_without_a_kernel_is_named(llama: Traced) -> None:
    model = read(llama.write_cuda("fp16")[0])
    scores = model.graph.outputs[0]
    model.graph.append(ir.node("Hardmax", [scores]))
    with pytest.raises(UnsupportedModelError, match="needs Hardmax, which ONNX Runtime's CUDA"):
        check_placement(model)
    with pytest.raises(UnsupportedModelError, match="GroupQueryAttention of FLOAT"):
        check_placement(read(llama.plain))


def test_a_graph_without_the_in_place_cache_is_refused(tmp_path: Path) -> None:
    model = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 18}), ir_version=10)
    ir.save(model, tmp_path / "plain.onnx")
    with pytest.raises(UnsupportedModelError, match="CUDA provider needs; use --device cpu"):
        write_engine(
            tmp_path / "plain.onnx", tmp_path / "x.onnx", find_recipe("fp16", "onnxruntime", "cuda")
        )
    assert not (tmp_path / "x.onnx").exists()
