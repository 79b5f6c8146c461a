"""GGUF files as they come: in parts, torn, with keys that say more than transformers reads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specdec.engines.load import load_package
from specdec.export.errors import ExportError, SourceError, UnsupportedModelError
from specdec.export.sources.source import load_config, resolve_source
from specdec.export.sources.weights import account_for, load_model
from specdec.runtime import SpeculativeDecoder
from tests.export.exporting import export, reference_text, speculative_text
from tests.export.sources.gguf_files import tokenizer_keys, write_gguf
from tests.export.test_refusals import refuse
from tests.export.tiny_models import make_model, write_tokenizer

PROMPT = [int(i) for i in np.random.default_rng(7).integers(2, 330, 80)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return tokenizer_keys(folder)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, tokenizer: dict[str, Any]) -> Path:
    """A folder with a model in three parts."""
    folder = tmp_path_factory.mktemp("parts")
    write_gguf(folder / "model.gguf", make_model("llama"), tokenizer, split_max_tensors=8)
    assert len(list(folder.iterdir())) == 3
    return folder


@pytest.mark.parametrize("number", [1, 3])
def test_all_parts_are_read_whichever_is_named(parts: Path, number: int) -> None:
    source = resolve_source(str(parts / f"model-{number:05}-of-00003.gguf"))
    accounted = account_for(source, load_config(source))
    assert accounted is not None
    assert accounted.record()["in_source"] == 21
    found, expected = load_model(source, accounted).state_dict(), make_model("llama").state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_missing_part_is_named(parts: Path, tmp_path: Path) -> None:
    shutil.copytree(parts, tmp_path / "source")
    (tmp_path / "source" / "model-00002-of-00003.gguf").unlink()
    (tmp_path / "beside").mkdir()
    message = refuse(
        tmp_path / "source" / "model-00001-of-00003.gguf",
        tmp_path / "beside" / "package",
        SourceError,
    )
    assert "split in 3, and model-00002-of-00003.gguf is not beside it" in message


def test_a_part_under_another_name_is_refused(parts: Path, tmp_path: Path) -> None:
    shutil.copy(parts / "model-00001-of-00003.gguf", tmp_path / "alone.gguf")
    with pytest.raises(SourceError, match="give it its name back"):
        load_config(resolve_source(str(tmp_path / "alone.gguf")))
    shutil.copytree(parts, tmp_path / "source")
    shutil.copy(
        parts / "model-00003-of-00003.gguf", tmp_path / "source" / "model-00002-of-00003.gguf"
    )
    with pytest.raises(SourceError, match="is not part 2 of 3"):
        load_config(resolve_source(str(tmp_path / "source" / "model-00001-of-00003.gguf")))


def test_a_split_file_is_exported_with_the_folders_text(parts: Path, tmp_path: Path) -> None:
    source = parts / "model-00001-of-00003.gguf"
    report = export(source, tmp_path / "package")
    counts = report.manifest.checks["source"]
    assert counts["target"]["in_source"] == counts["target"]["parameters_compared"] == 21
    assert counts["draft"]["parameters_compared"] == 21
    model = make_model("llama")
    model.generation_config.eos_token_id = None
    with load_package(report.path, num_threads=1) as loaded:
        decoder = SpeculativeDecoder.from_package(loaded, owns=False)
        expected = reference_text(model, PROMPT, 24)
        assert speculative_text(decoder, PROMPT, 24, 0) == expected
        assert speculative_text(decoder, PROMPT, 24, 4) == expected
        assert decoder.encode("hello <tool>x") == [266, 222, 330, 89]


@pytest.mark.parametrize(
    ("extra", "words", "error"),
    [
        ({"general.architecture": "bert"}, "architecture 'bert'", UnsupportedModelError),
        ({"general.type": "adapter"}, "general.type is 'adapter'", SourceError),
        ({"llama.rope.scaling.type": "magic"}, "llama.rope.scaling.type is 'magic'", SourceError),
        ({"llama.rope.scaling.type": "longrope"}, "lacks rope_factors_long.weight", SourceError),
        ({"llama.rope.dimension_count": 8}, "llama.rope.dimension_count is 8", SourceError),
        ({"llama.expert_count": 8}, "llama.expert_count is 8; allowed is 0", SourceError),
        ({"llama.surprise": 3}, "llama.surprise is 3, which is not known", SourceError),
        ({"llama.attention.causal": False}, "llama.attention.causal is False", SourceError),
        ({"llama.attention.value_length": 8}, "value_length is 8 and key_length 16", SourceError),
        ({"llama.context_length": None}, "lacks the key llama.context_length", SourceError),
        ({"llama.attention.head_count": [4, 2]}, "differs from layer to layer", SourceError),
        ({"llama.block_count": 3}, "lacks 9 tensors of the model", SourceError),
        ({"llama.block_count": 1}, "that the model has no place for", SourceError),
        ({"llama.feed_forward_length": 95}, "shape [64, 96], and the config", SourceError),
        ({"tokenizer.ggml.pre": "klingon"}, "pre-tokenizer 'klingon'", SourceError),
    ],
)
def test_keys_that_cannot_be_honoured_are_refused_by_name(
    tmp_path: Path,
    tokenizer: dict[str, Any],
    extra: dict[str, Any],
    words: str,
    error: type[ExportError],
) -> None:
    path = write_gguf(tmp_path / "model.gguf", make_model("llama"), tokenizer, extra=extra)
    (tmp_path / "beside").mkdir()
    message = refuse(path, tmp_path / "beside" / "package", error)
    assert words in message
    assert str(path) in message


@pytest.mark.parametrize(
    ("dropped", "tables", "words"),
    [
        (("blk.1.ffn_down.weight",), {}, "(model.layers.1.mlp.down_proj.weight)"),
        (("token_embd.weight",), {}, "lacks the tensor token_embd.weight"),
        ((), {"blk.0.surprise.weight": np.zeros(4, np.float32)}, "(blk.0.surprise.weight)"),
        ((), {"blk.0.attn_q.bias": np.zeros(64, np.float32)}, "lacks 7 tensors"),
        ((), {"rope_freqs.weight": np.ones(5, np.float32)}, "rope_freqs.weight has 5 values"),
    ],
)
def test_tensors_that_do_not_belong_are_named(
    tmp_path: Path,
    tokenizer: dict[str, Any],
    dropped: tuple[str, ...],
    tables: dict[str, Any],
    words: str,
) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, make_model("llama"), tokenizer, tables=tables, dropped=dropped)
    (tmp_path / "beside").mkdir()
    assert words in refuse(path, tmp_path / "beside" / "package", SourceError)


def test_keys_that_say_nothing_are_passed_over(tmp_path: Path, tokenizer: dict[str, Any]) -> None:
    extra = {
        "general.name": "A model",
        "general.size_label": "1M",
        "general.languages": ["en"],
        "quantize.imatrix.entries_count": 7,
        "llama.vocab_size": 332,
        "llama.rope.scaling.finetuned": True,
        "vendor.note": "made with care",
    }
    path = write_gguf(tmp_path / "model.gguf", make_model("llama"), tokenizer, extra=extra)
    found = load_model(resolve_source(str(path))).state_dict()
    assert torch.equal(found["lm_head.weight"], make_model("llama").lm_head.weight)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-500], "within or before tensor"),
        (lambda data: data[:1000], "within its header"),
        (lambda data: b"GGUX" + data[4:], "it is no GGUF file"),
        (lambda data: data[:4] + b"\x63\0\0\0" + data[8:], "version 99"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer"),
    ],
)
def test_torn_files_are_refused(
    tmp_path: Path, tokenizer: dict[str, Any], change: Any, words: str
) -> None:
    path = write_gguf(tmp_path / "model.gguf", make_model("llama"), tokenizer)
    path.write_bytes(change(path.read_bytes()))
    (tmp_path / "beside").mkdir()
    assert words in refuse(path, tmp_path / "beside" / "package", SourceError)
