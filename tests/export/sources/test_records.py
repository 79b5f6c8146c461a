"""End tokens, contexts and the record of a source, as the package has them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from specdec.engines.load import load_package
from specdec.runtime import SpeculativeDecoder
from specdec.runtime.report.inspection import inspect_package
from tests.export.exporting import export, speculative_text
from tests.export.sources.test_checkpoints import refused
from tests.export.tiny_models import write_model


def set_end(folder: Path, file: str, value: Any) -> Path:
    data = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(data | {"eos_token_id": value}))
    return folder


def test_ends_that_differ_are_united_with_a_note(llama: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(llama, source)
    set_end(source, "generation_config.json", [331])
    package = export(source, tmp_path / "package", draft="none").path
    with load_package(package, num_threads=1) as loaded:
        manifest = loaded.manifest
    assert manifest.tokenizer.eos_token_ids == (331, 1)
    notes = [note for note in manifest.checks["notes"] if "names several ends" in note]
    assert notes == [
        f"{source} names several ends (generation_config.json [331], config.json [1], the "
        "tokenizer [1]); each of them ends a text"
    ]


@pytest.mark.parametrize(
    ("end", "words"), [(335, "id 335, which is no token"), (10**6, "id 1000000, which is no")]
)
def test_an_end_that_is_no_token_is_refused(
    llama: Path, tmp_path: Path, end: int, words: str
) -> None:
    source = tmp_path / "source"
    shutil.copytree(llama, source)
    set_end(source, "config.json", end)
    assert words in refused(source, tmp_path)


def test_an_end_without_a_logit_is_refused(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", "llama", vocab_size=320)
    set_end(source, "generation_config.json", 331)
    assert "the model has 320 logits" in refused(source, tmp_path)


def test_a_package_says_what_was_accounted_for(llama: Path, tmp_path: Path) -> None:
    path = export(llama, tmp_path / "package").path
    with load_package(path, num_threads=1) as loaded:
        inspection = inspect_package(loaded)  # type: ignore[arg-type]
    assert [weights.words for weights in inspection.weights] == [
        f"{engine}: 21 tensors accounted for (21 parameters), 331 values of 21 compared with the "
        "file"
        for engine in ("target", "draft")
    ]


def test_a_draft_of_a_shorter_context_is_measured(llama: Path, tmp_path: Path) -> None:
    draft = write_model(tmp_path / "draft", "llama", seed=3, max_position_embeddings=64)
    report = export(llama, tmp_path / "package", draft, report="short")
    assert report.manifest.draft is not None
    assert report.manifest.draft.max_length == 64
    assert report.manifest.checks["report"]["measured"]
    with load_package(report.path, num_threads=1) as loaded:
        decoder = SpeculativeDecoder.from_package(loaded, owns=False)
        prompt = list(range(2, 120))
        plain = speculative_text(decoder, prompt, 20, 0)
        assert speculative_text(decoder, prompt, 20, 4) == plain
