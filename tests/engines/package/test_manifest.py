"""The manifest: what is written loads again unchanged, and nothing else loads."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from pathlib import Path

import pytest

from specdec.engines import (
    EngineEntry,
    FileEntry,
    Manifest,
    PackageError,
    PackageVersionError,
    TokenizerEntry,
    write_manifest,
)
from tests.engines.packages import (
    ABSENT,
    TARGET_FIELDS,
    assert_one_line,
    make_manifest,
    refusal,
    spoil,
)


def test_what_is_written_loads_unchanged() -> None:
    manifest = make_manifest()
    document = manifest.to_json()
    assert Manifest.from_json(document) == manifest
    assert Manifest.from_json(document).to_json() == document


def test_the_document_has_the_order_of_the_format() -> None:
    manifest = make_manifest()
    backwards = dataclasses.replace(manifest, files=dict(reversed(manifest.files.items())))
    document = backwards.to_json()
    assert document == manifest.to_json()
    assert document.endswith("}\n")
    tree = json.loads(document)
    assert list(tree) == [
        "schema_version",
        "specdec_version",
        "engines",
        "tokenizer",
        "files",
        "source",
        "checks",
        "costs",
    ]
    assert list(tree["engines"]["target"]) == list(TARGET_FIELDS)
    assert list(tree["files"]) == sorted(tree["files"])
    assert tree["schema_version"] == 1


@pytest.mark.parametrize("path", ["engines/draft", "costs", "tokenizer/chat_template"])
def test_optional_parts_may_be_absent(path: str) -> None:
    manifest = Manifest.from_json(spoil(path, ABSENT))
    got = {
        "engines/draft": manifest.draft,
        "costs": manifest.costs or None,
        "tokenizer/chat_template": manifest.tokenizer.chat_template,
    }
    assert got[path] is None


def test_no_end_token_is_legal() -> None:
    assert Manifest.from_json(spoil("tokenizer/eos_token_ids", [])).tokenizer.eos_token_ids == ()


def test_token_id_0_is_legal() -> None:
    manifest = Manifest.from_json(spoil("tokenizer/bos_token_id", 0))
    assert manifest.tokenizer.bos_token_id == 0


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schema_version", ABSENT, ["is 'missing'", "allowed is an integer, 1 or 2"]),
        ("schema_version", "1", ["schema_version is '1'"]),
        ("schema_version", True, ["schema_version is true"]),
        ("specdec_version", ABSENT, ["manifest.specdec_version is missing"]),
        ("specdec_version", 1, ["specdec_version is 1", "a non-empty string"]),
        ("surprise", 1, ["unknown key 'surprise'", "schema_version"]),
        ("engines", [], ["engines is an array of 0 items", "allowed is an object"]),
        ("engines/target", ABSENT, ["engines.target is missing"]),
        ("engines/target", None, ["engines.target is null", "allowed is an object"]),
        ("engines/draft", [1], ["engines.draft is an array of 1 items"]),
        ("engines/third", {}, ["engines", "unknown key 'third'", "target, draft"]),
        ("engines/target/surprise", 1, ["engines.target", "unknown key 'surprise'"]),
        ("engines/target/graph", ABSENT, ["engines.target.graph is missing"]),
        ("engines/target/graph", "other.onnx", ["engines.target.graph", "listed in files"]),
        ("engines/target/graph", "model.ort", ["engines.target.graph", '".onnx"']),
        ("engines/target/graph", "../model.onnx", ["engines.target.graph", "inside the package"]),
        ("engines/target/layout", "paged", ["engines.target.layout is 'paged'", '"in_place"']),
        ("engines/target/storage", "fp8", ["engines.target.storage is 'fp8'", '"int4"']),
        ("engines/target/compute", None, ["engines.target.compute is null", '"fp32"']),
        ("engines/target/recipe", "", ["engines.target.recipe is ''"]),
        ("engines/target/vocab_size", "100", ["vocab_size is '100'", "an integer, 1 .."]),
        ("engines/target/vocab_size", 0, ["vocab_size is 0", "1 .."]),
        ("engines/target/vocab_size", 129, ["logits_width is 128", "129 (vocab_size) or more"]),
        ("engines/target/num_layers", 2.0, ["num_layers is 2.0", "an integer"]),
        ("engines/target/num_layers", True, ["num_layers is true", "an integer"]),
        ("engines/target/num_kv_heads", 3, ["num_kv_heads is 3", "divisor", "4"]),
        ("engines/target/max_length", 10**9, ["max_length is 1000000000", "16777216"]),
        ("engines/target/prefill_chunk", 65, ["prefill_chunk is 65", "1 .. 64"]),
        ("engines/target/kv_dtype", "int8", ["kv_dtype is 'int8'", '"float16"']),
        ("engines/target/shares_target_cache", 0, ["shares_target_cache is 0", "true or false"]),
        ("engines/target/shares_target_cache", True, ["engines.target.shares", "is true"]),
        ("engines/draft/vocab_size", 99, ["engines.draft.vocab_size is 99", "the target's, 100"]),
        ("engines/draft/num_layers", 1, ["engines.draft.num_layers is 1", "shared cache's, 2"]),
        ("engines/draft/num_kv_heads", 4, ["engines.draft.num_kv_heads is 4", "cache's, 2"]),
        ("engines/draft/head_size", 4, ["engines.draft.head_size is 4", "cache's, 8"]),
        ("engines/draft/kv_dtype", "float16", ["draft.kv_dtype is 'float16'", "'float32'"]),
        ("engines/draft/max_length", 32, ["engines.draft.max_length is 32", "cache's, 64"]),
        ("engines/draft/layout", "concatenated", ["draft.layout is 'concatenated'"]),
        ("engines/target/layout", "concatenated", ['"in_place" only']),
        ("tokenizer", None, ["tokenizer is null"]),
        ("tokenizer/file", None, ["tokenizer.file is null"]),
        ("tokenizer/file", "vocab.json", ["tokenizer.file is 'vocab.json'", "listed in files"]),
        ("tokenizer/chat_template", "t.jinja", ["tokenizer.chat_template", "listed in files"]),
        ("tokenizer/eos_token_ids", 2, ["tokenizer.eos_token_ids is 2", "an array"]),
        ("tokenizer/eos_token_ids", [2, "3"], ["tokenizer.eos_token_ids", "each item an integer"]),
        ("tokenizer/eos_token_ids", [2, 100], ["tokenizer.eos_token_ids[1] is 100", "0 .. 99"]),
        ("tokenizer/bos_token_id", -1, ["tokenizer.bos_token_id is -1", "or null"]),
        ("tokenizer/bos_token_id", 100, ["tokenizer.bos_token_id is 100", "0 .. 99"]),
        ("tokenizer/special_tokens", {"a": 1}, ["special_tokens", "an object of strings"]),
        ("tokenizer/special_tokens", [], ["special_tokens is an array", "an object of strings"]),
        ("files", [], ["files is an array", "an object"]),
        ("source", "demo", ["source is 'demo'", "an object"]),
        ("source", ABSENT, ["manifest.source is missing"]),
        ("checks", None, ["checks is null", "an object"]),
        ("costs", [1], ["costs is an array of 1 items", "an object"]),
    ],
)
def test_a_broken_field_is_named(path: str, value: object, words: list[str]) -> None:
    message = refusal(spoil(path, value))
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (None, "is null; allowed is an object"),
        ({"size": -1, "sha256": "0" * 64}, "size is -1"),
        ({"size": 2**63, "sha256": "0" * 64}, "size is 9223372036854775808"),
        ({"size": 1}, "sha256 is missing"),
        ({"size": 1, "sha256": "0" * 63}, "64 lower-case hexadecimal digits"),
        ({"size": 1, "sha256": "A" * 64}, "64 lower-case hexadecimal digits"),
        ({"size": 1, "sha256": "0" * 64, "mode": 7}, "unknown key 'mode'"),
    ],
)
def test_a_broken_file_entry_is_named(entry: object, words: str) -> None:
    message = refusal(spoil("files/tokenizer.json", entry))
    assert "files['tokenizer.json']" in message
    assert words in message


@pytest.mark.parametrize(
    ("version", "advice"), [(3, "upgrade specdec"), (10**9, "upgrade specdec"), (0, "export")]
)
def test_another_schema_version_is_told_apart(version: int, advice: str) -> None:
    tree = {"schema_version": version, "whatever": "a later format holds"}
    with pytest.raises(PackageVersionError) as caught:
        Manifest.from_json(json.dumps(tree))
    message = assert_one_line(caught.value)
    assert f"schema_version {version}; this release reads 1 and 2" in message
    assert advice in message
    assert caught.value.code == 12


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}, b"bytes"])
def test_free_form_sections_hold_json_only(value: object) -> None:
    manifest = dataclasses.replace(make_manifest(), source={"a": value})
    with pytest.raises(PackageError, match="cannot be written as JSON"):
        manifest.to_json()


def test_what_would_not_load_is_not_written(tmp_path: Path) -> None:
    manifest = dataclasses.replace(make_manifest(), checks={1: "a", "1": "b"})
    with pytest.raises(PackageError, match="'1' twice"):
        write_manifest(tmp_path, manifest)
    assert list(tmp_path.iterdir()) == []


def test_write_manifest_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "specdec.json").write_text("old")
    path = write_manifest(tmp_path, make_manifest())
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == make_manifest().to_json().encode()


def test_write_manifest_needs_a_directory(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="there is no directory"):
        write_manifest(tmp_path / "absent", make_manifest())


def test_constructors_hold_the_same_rules() -> None:
    with pytest.raises(PackageError, match="num_layers is 0; allowed is an integer, 1"):
        EngineEntry(**{**TARGET_FIELDS, "num_layers": 0})
    with pytest.raises(PackageError, match="sha256 is 'x'"):
        FileEntry(1, "x")
    with pytest.raises(PackageError, match="file is '/vocabulary'"):
        TokenizerEntry("/vocabulary", (2,))
    manifest = make_manifest()
    draft = EngineEntry(**{**TARGET_FIELDS, "vocab_size": 99})
    with pytest.raises(PackageError, match=r"engines\.draft\.vocab_size is 99"):
        dataclasses.replace(manifest, draft=draft)


def test_refusals_cross_process_borders() -> None:
    with pytest.raises(PackageError) as caught:
        FileEntry(-1, "0" * 64)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is type(caught.value)
    assert str(copy) == str(caught.value)


def test_manifests_are_frozen() -> None:
    manifest = make_manifest()
    with pytest.raises(dataclasses.FrozenInstanceError):
        manifest.target.vocab_size = 3  # type: ignore[misc]


def test_the_documented_example_loads() -> None:
    text = (Path(__file__).parents[3] / "docs/packages.md").read_text(encoding="utf-8")
    example = text.split("```json\n")[1].split("```")[0]
    manifest = Manifest.from_json(example)
    assert manifest.target.num_layers == 30
    assert manifest.draft is None
