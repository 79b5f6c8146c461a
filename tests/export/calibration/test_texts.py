"""Where calibration texts come from, and which files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specdec.export import ExportOptions
from specdec.export.calibration.texts import load_calibration
from specdec.export.errors import ExportOptionError
from specdec.export.preflight import preflight
from specdec.export.sources.source import load_config, resolve_source
from specdec.export.sources.tokenizers import SourceTokenizer, load_tokenizer
from specdec.runtime.report.measuring.prompt_set import load_prompts, load_texts
from tests.export.tiny_models import write_model

SETTINGS: dict[str, Any] = {
    "backend": "tensorrt-rtx",
    "compute_capabilities": ("8.9",),
    "draft_precision": "int8-qdq",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("texts") / "source", "llama")


@pytest.fixture(scope="module")
def tokenizer(source: Path) -> SourceTokenizer:
    resolved = resolve_source(str(source))
    return load_tokenizer(resolved, load_config(resolved))


@pytest.mark.parametrize(
    ("content", "samples"),
    [
        ("one two\nthree\n", ["one two", "three"]),
        ("\ufeffone two\r\nthree\r\n", ["one two", "three"]),
        ("one\ntwo\n\n \nthree\n\n", ["one\ntwo", "three"]),
        ("\n\none line\n\n\n", ["one line"]),
    ],
)
def test_samples_of_a_file(
    tokenizer: SourceTokenizer, tmp_path: Path, content: str, samples: list[str]
) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes(content.encode())
    found = load_calibration(path, tokenizer)
    assert found.source == "file"
    assert found.samples == tuple(tuple(tokenizer.backend.encode(text).ids) for text in samples)
    assert found.num_tokens == sum(map(len, found.samples))


def test_our_own_texts_are_the_default(tokenizer: SourceTokenizer) -> None:
    found = load_calibration(None, tokenizer)
    assert found.source == "built-in"
    assert len(found.samples) == len(load_prompts()) + len(load_texts())
    assert found.num_tokens > 1000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no calibration file"),
        (b"", "has no text"),
        (b" \n\n\t\n", "has no text"),
        (b"fine\n\xff\xfe", r"is not UTF-8 \(byte 5\)"),
    ],
)
def test_files_that_are_refused_before_weights_are_read(
    source: Path, tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "texts.txt"
    if content is not None:
        path.write_bytes(content)
    options = ExportOptions(str(source), "self", tmp_path / "out", calibration=path, **SETTINGS)
    (source / "model.safetensors").rename(source / "kept")
    (source / "model.safetensors").write_bytes(b"not read")
    try:
        with pytest.raises(ExportOptionError, match=f"{words}.*; allowed is a UTF-8 file"):
            preflight(options)
    finally:
        (source / "kept").replace(source / "model.safetensors")


def test_a_folder_is_no_file(tokenizer: SourceTokenizer, tmp_path: Path) -> None:
    with pytest.raises(ExportOptionError, match=r"cannot be read .*; allowed is a UTF-8 file"):
        load_calibration(tmp_path, tokenizer)


@pytest.mark.parametrize(
    ("draft", "changes", "words"),
    [
        ("self", {"draft_precision": "int8"}, "with draft precision int8, which needs none"),
        ("none", {}, "with draft none, which needs none"),
        (
            "self",
            {"backend": "onnxruntime", "compute_capabilities": (), "draft_precision": "int8"},
            "with draft precision int8, which needs none",
        ),
    ],
)
def test_a_file_that_nothing_needs_is_refused(
    tmp_path: Path, draft: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportOptionError, match=words):
        ExportOptions("demo", draft, Path("out"), calibration=tmp_path, **SETTINGS | changes)


def test_it_is_a_recipe_of_the_tensorrt_backends_alone() -> None:
    changes = {"backend": "onnxruntime", "compute_capabilities": ()}
    with pytest.raises(ExportOptionError, match="'int8-qdq' is not known for onnxruntime"):
        ExportOptions("demo", "self", Path("out"), **SETTINGS | changes)
