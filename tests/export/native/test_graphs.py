"""Both graphs of every tiny architecture: the standard one to the bit, the native one closely."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from specdec.engines.native.library import DOMAIN
from specdec.export.native.pair import native_name, write_native
from specdec.export.weights.bytes_read import weights_read
from tests.export.tiny_models import MODELS, VOCABULARY
from tests.support.graphs import Traced, logits, trace_tiny
from tests.support.native import needs_library, write_pair

FP16_TOLERANCE = 5e-6
"""Of the span of the logits: sums in another order."""
BLOCKS_TOLERANCE = 0.03
"""Activations are rounded to 8 bits a block: a sum in another order may round the other way."""
WIDTHS = (1, 33)
IDS = np.random.default_rng(3).integers(2, VOCABULARY, (1, 40))
QUANTIZED = ("gemma2", "gpt2", "llama-biased", "qwen3_moe")
# products, all products, attention nodes, with norm, gated, with residual
EXPECTED = {
    "llama": (11, 11, 2, 5, 2, 4),
    "llama-tied": (11, 11, 2, 5, 2, 4),
    "llama-biased": (11, 11, 2, 5, 2, 4),
    "qwen3": (11, 15, 2, 3, 2, 4),
    "arcee": (9, 9, 2, 5, 0, 4),
    "gpt2": (9, 9, 2, 0, 0, 0),
}


@pytest.fixture(scope="module", params=sorted(MODELS))
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    made = trace_tiny(request.param, tmp_path_factory.mktemp("traced"))
    if made is None:
        pytest.skip("its cache is concatenated: no native graph")
    return made


@needs_library
def test_fp16(traced: Traced, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    pair = write_pair(traced, "fp16", tmp_path / "fp16")
    done = pair.done
    wanted = EXPECTED.get(request.node.callspec.params["traced"])
    counted = (done.products, done.all_products, done.attentions)
    if wanted is not None:
        assert (*counted, done.norms, done.gates, done.residuals) == wanted
    assert done.attentions == traced.entry.num_layers
    original, standard, native = pair.original(), pair.standard(), pair.native()
    for rows in WIDTHS:
        expected = logits(original, IDS, rows)
        assert np.array_equal(logits(standard, IDS, rows), expected), rows
        found = logits(native, IDS, rows)
        assert np.abs(found - expected).max() <= FP16_TOLERANCE * np.ptp(expected), rows


@needs_library
@pytest.mark.parametrize(
    ("traced", "precision"),
    [
        *((name, precision) for name in QUANTIZED for precision in ("int8", "int4-kquant")),
        ("llama-biased", "int8-dynamic"),  # products stay standard
        ("llama-biased", "int4-hqq"),
    ],
    indirect=["traced"],
)
def test_blocks(traced: Traced, precision: str, tmp_path: Path) -> None:
    pair = write_pair(traced, precision, tmp_path / "blocks")
    original, standard, native = pair.original(), pair.standard(), pair.native()
    for rows in WIDTHS:
        expected = logits(original, IDS, rows)
        assert np.array_equal(logits(standard, IDS, rows), expected), rows
        found = logits(native, IDS, rows)
        assert np.abs(found - expected).max() <= BLOCKS_TOLERANCE * np.ptp(expected), rows
        same = np.mean(found.argmax(-1) == expected.argmax(-1))
        assert same > 0.95, rows


@pytest.mark.parametrize("traced", ["llama-tied"], indirect=True)
def test_one_data_file_holds_the_weights_of_both_graphs(traced: Traced, tmp_path: Path) -> None:
    pair = write_pair(traced, "fp16", tmp_path / "fp16")
    folder = pair.graph.parent
    names = ("model.native.onnx", "model.onnx", "model.onnx.data")
    assert sorted(p.name for p in folder.iterdir() if p.name.startswith("model")) == list(names)
    before = folder / "before.onnx.data"
    # Panels of 32 outputs pad 340 logits to 352 and nothing else; pages of 4 KiB around each.
    assert (folder / names[2]).stat().st_size <= before.stat().st_size + 12 * 64 * 2 + 8192
    standard, native = ir.load(folder / names[1]), ir.load(folder / names[0])
    assert {node.domain for node in standard.graph} == {"", "com.microsoft"}
    kinds = {node.op_type for node in native.graph if node.domain == DOMAIN}
    assert kinds == {"Attention", "GatherFp16", "MatMulFp16"}
    inputs = {str(value.name) for value in native.graph.inputs}
    assert {"query_starts", "past_lengths", "slots"} < inputs
    assert not {"seqlens_k", "total_sequence_length"} & inputs


@needs_library
@pytest.mark.parametrize("traced", ["llama-tied"], indirect=True)
def test_a_native_pass_reads_the_weights_as_they_are_stored(traced: Traced, tmp_path: Path) -> None:
    pair = write_pair(traced, "fp16", tmp_path / "fp16")
    read = weights_read(pair.graph.parent, pair.entry)
    size = (pair.graph.parent / "model.onnx.data").stat().st_size
    assert 0.7 * size < read < 1.05 * size


def test_a_graph_whose_attention_is_not_known_is_left_alone(tmp_path: Path) -> None:
    traced = trace_tiny("llama", tmp_path)
    assert traced is not None
    model = ir.load(traced.plain)
    node = next(node for node in model.graph if node.op_type == "GroupQueryAttention")
    node.attributes["smooth_softmax"] = ir.AttrInt64("smooth_softmax", 1)
    ir.save(model, traced.plain)
    before = traced.plain.read_bytes()
    assert write_native(traced.plain, "plain.onnx") == (
        "its attention has the attribute smooth_softmax"
    )
    assert traced.plain.read_bytes() == before
    assert not traced.plain.with_name(native_name("plain.onnx")).exists()
