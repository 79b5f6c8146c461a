"""Folders of ONNX Runtime GenAI: taken as they are, the greedy text is that package's own."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from specdec.engines import read_package
from specdec.export.errors import ExportError, ExportOptionError, SourceError, UnsupportedModelError
from specdec.export.genai.graph import adapt_graph
from specdec.export.options import ExportOptions
from specdec.export.preflight import preflight
from specdec.export.sources.genai_folder import read_genai_config
from specdec.runtime import SamplingParams, SpeculativeDecoder
from tests.export.exporting import export, read_model, reference_text, speculative_text
from tests.export.genai.make_folder import FOLDER, NEW_TOKENS, PROMPT, greedy_text
from tests.export.tiny_models import VOCABULARY, write_model


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that the folder was made from."""
    root = tmp_path_factory.mktemp("genai")
    return write_model(root / "llama", "llama", vocab_size=VOCABULARY)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder as target and as its own draft."""
    out = tmp_path_factory.mktemp("genai") / "package"
    export(FOLDER, out, draft=FOLDER)
    return out


def stored_text() -> list[int]:
    stored: list[int] = json.loads((FOLDER.parent / "greedy.json").read_text())
    assert len(stored) == NEW_TOKENS
    return stored


@pytest.mark.parametrize("num_draft_tokens", [0, 1, 4])
def test_greedy_text_is_that_packages_own(package: Path, num_draft_tokens: int) -> None:
    with SpeculativeDecoder.load(package, num_threads=1) as decoder:
        got = speculative_text(decoder, PROMPT, NEW_TOKENS, num_draft_tokens)
    assert got == stored_text()


@pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime_genai") is None,
    reason="onnxruntime-genai is not installed",
)
def test_the_stored_text_is_what_it_generates() -> None:
    assert greedy_text(sys.executable, FOLDER) == stored_text()


def test_the_package_says_what_the_target_is(package: Path) -> None:
    manifest = read_package(package).manifest
    target = manifest.target
    assert (target.storage, target.compute, target.recipe) == ("int4", "fp32", "as given")
    assert (target.num_layers, target.num_kv_heads, target.head_size) == (2, 2, 16)
    assert (target.vocab_size, target.max_length) == (VOCABULARY, 256)
    assert manifest.tokenizer.eos_token_ids == (1,)
    assert "lossless to that engine" in manifest.checks["notes"][0]
    assert manifest.checks["problems"] == []
    parity = manifest.checks["target_width_parity"]
    assert set(parity) >= {"rows_1", "rows_5", "after_truncation"}
    assert max(parity.values()) < 1e-4


def bytes_of(value: ir.Value) -> bytes:
    """The content of an initializer, which a package may keep under another name."""
    content: bytes = value.const_value.numpy().tobytes()
    return content


def test_the_interface_is_the_packages_and_the_weights_are_the_folders(tmp_path: Path) -> None:
    written = adapt_graph(read_genai_config(FOLDER, "it"), 256, tmp_path)
    adapted, given = ir.load(written), ir.load(FOLDER / "model.onnx")
    names = [value.name for value in adapted.graph.inputs]
    assert {"seqlens_k", "total_sequence_length", "logit_rows"} <= set(names)
    assert "attention_mask" not in names
    weights = {bytes_of(value) for value in adapted.graph.initializers.values()}
    for value in given.graph.initializers.values():
        if len(value.const_value.shape) > 1:
            assert bytes_of(value) in weights, value.name
    kinds = [node.op_type for node in adapted.graph]
    assert kinds.count("MatMulNBits") == [n.op_type for n in given.graph].count("MatMulNBits")


def test_a_folder_drafts_for_its_source(llama: Path, tmp_path: Path) -> None:
    export(llama, tmp_path / "package", draft=FOLDER)
    with SpeculativeDecoder.load(tmp_path / "package", num_threads=1) as decoder:
        params = SamplingParams(max_new_tokens=40, ignore_eos=True, num_draft_tokens=4)
        result = decoder.generate(PROMPT, params)
    assert list(result.token_ids) == reference_text(read_model(llama), PROMPT, 40)
    assert result.stats.acceptance_rate > 0.2


def test_a_source_drafts_for_a_folder(llama: Path, tmp_path: Path) -> None:
    export(FOLDER, tmp_path / "package", draft=llama)
    with SpeculativeDecoder.load(tmp_path / "package", num_threads=1) as decoder:
        assert speculative_text(decoder, PROMPT, NEW_TOKENS, 3) == stored_text()


def spoil(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the folder with another `genai_config.json`."""
    copy = Path(shutil.copytree(FOLDER, folder))
    config = json.loads((copy / "genai_config.json").read_text())
    change(config)
    (copy / "genai_config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda c: c["model"].pop("decoder"), SourceError, "lacks the key 'decoder'"),
        (lambda c: c["model"].update(vocab_size=0), SourceError, "vocab_size is 0"),
        (lambda c: c["model"].update(vision={}), UnsupportedModelError, r"has a model\.vision"),
        (
            lambda c: c["model"]["decoder"].update(filename="gone.onnx"),
            SourceError,
            r"lacks the graph gone\.onnx",
        ),
        (
            lambda c: c["model"]["decoder"].update(filename="../x.onnx"),
            SourceError,
            "lacks the graph",
        ),
        (lambda c: c["model"].update(eos_token_id=400), SourceError, "the end token 400"),
        (
            lambda c: c["model"]["decoder"].update(sliding_window={"window_size": 8}),
            UnsupportedModelError,
            "has a sliding_window in genai_config",
        ),
    ],
)
def test_a_wrong_configuration_is_refused_early(
    tmp_path: Path, change: Any, error: type[ExportError], words: str
) -> None:
    source = spoil(tmp_path / "folder", change)
    with pytest.raises(error, match=words):
        preflight(ExportOptions(str(source), "none", tmp_path / "package"))


def test_layers_that_the_graph_does_not_have_are_refused(tmp_path: Path) -> None:
    source = spoil(tmp_path / "folder", lambda c: c["model"]["decoder"].update(num_hidden_layers=3))
    with pytest.raises(UnsupportedModelError, match="2 GroupQueryAttention nodes for 3 layers"):
        export(source, tmp_path / "package", draft="none")
    assert not (tmp_path / "package").exists()


def edit_graph(folder: Path, change: Callable[[ir.Model], None]) -> Path:
    """A copy of the folder with another graph."""
    copy = Path(shutil.copytree(FOLDER, folder))
    model = ir.load(copy / "model.onnx")
    change(model)
    ir.save(model, copy / "model.onnx")
    return copy


def _window(model: ir.Model) -> None:
    for node in model.graph:
        if node.op_type == "GroupQueryAttention":
            node.attributes.add(ir.AttrInt64("sliding_window_cache", 1))


def _masks(model: ir.Model) -> None:
    """A second use of the mask: it scales the ids."""
    mask = next(v for v in model.graph.inputs if v.name == "attention_mask")
    ids = next(v for v in model.graph.inputs if v.name == "input_ids")
    uses = list(ids.uses())
    times = ir.node("Mul", [ids, mask])
    times.outputs[0].name = "masked_ids"
    model.graph.insert_before(model.graph[0], times)
    for use in uses:
        use.node.replace_input_with(use.idx, times.outputs[0])


def _another_input(model: ir.Model) -> None:
    kind = ir.TensorType(ir.DataType.INT64)
    model.graph.inputs.append(ir.Value(name="beams", shape=ir.Shape([1]), type=kind))


def _other_attention(model: ir.Model) -> None:
    for node in model.graph:
        if node.op_type == "GroupQueryAttention":
            node.op_type = "MultiHeadAttention"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_window, "attention nodes of .* have sliding_window_cache"),
        (_another_input, "has an input 'beams'"),
        (_other_attention, "0 GroupQueryAttention nodes for 2 layers"),
    ],
)
def test_a_graph_of_another_kind_is_refused(
    tmp_path: Path, change: Callable[[ir.Model], None], words: str
) -> None:
    source = edit_graph(tmp_path / "folder", change)
    with pytest.raises(UnsupportedModelError, match=words):
        export(source, tmp_path / "package", draft="none")
    assert not (tmp_path / "package").exists()


def test_a_mask_that_is_used_otherwise_is_refused(tmp_path: Path) -> None:
    source = edit_graph(tmp_path / "folder", _masks)
    with pytest.raises(UnsupportedModelError, match="its attention_mask for more than its length"):
        adapt_graph(read_genai_config(source, "it"), 64, tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"draft": "self"}, "choose --draft none"),
        ({"draft": "none", "device": "cuda"}, "--backend onnxruntime on the CPU"),
        ({"draft": "none", "backend": "tensorrt"}, "--backend onnxruntime on the CPU"),
        ({"draft": "none", "max_length": 300}, "allows at most 256 tokens"),
    ],
)
def test_what_its_weights_cannot_give_is_refused(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    draft = options.pop("draft")
    with pytest.raises(ExportOptionError, match=words):
        preflight(ExportOptions(str(FOLDER), draft, tmp_path / "package", **options))
