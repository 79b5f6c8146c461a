"""Builders of small valid packages, to be spoiled one way per test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specdec.engines import (
    EngineEntry,
    FileEntry,
    Manifest,
    PackageError,
    PackageIntegrityError,
    PackageVersionError,
    TokenizerEntry,
    inventory,
    read_package,
)

TARGET_GRAPH = "target/model.onnx"
DRAFT_GRAPH = "draft/model.onnx"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}\n"

TARGET_FIELDS: dict[str, Any] = {
    "graph": TARGET_GRAPH,
    "backend": "onnxruntime",
    "layout": "in_place",
    "storage": "fp16",
    "compute": "fp32",
    "recipe": "fp16",
    "vocab_size": 100,
    "logits_width": 128,
    "max_length": 64,
    "num_layers": 2,
    "num_attention_heads": 4,
    "num_kv_heads": 2,
    "head_size": 8,
    "kv_dtype": "float32",
    "prefill_chunk": 16,
    "shares_target_cache": False,
}
DRAFT_FIELDS = {
    **TARGET_FIELDS,
    "graph": DRAFT_GRAPH,
    "storage": "int8",
    "recipe": "int8-blocks",
    "shares_target_cache": True,
}
TOKENIZER = TokenizerEntry(
    file="tokenizer.json",
    eos_token_ids=(2,),
    chat_template="chat_template.jinja",
    bos_token_id=1,
    special_tokens={"bos_token": "<s>", "eos_token": "</s>"},
)


def make_manifest(files: dict[str, FileEntry] | None = None) -> Manifest:
    """Return a valid manifest of a self-draft pair; without `files`, of four empty ones."""
    names = (TARGET_GRAPH, DRAFT_GRAPH, "tokenizer.json", "chat_template.jinja")
    return Manifest(
        target=EngineEntry(**TARGET_FIELDS),
        draft=EngineEntry(**DRAFT_FIELDS),
        tokenizer=TOKENIZER,
        files=files or {name: FileEntry(0, "0" * 64) for name in names},
        specdec_version="0.1.0",
        source={"target": "demo"},
        checks={"greedy_mismatches": 0},
        costs={"target_seconds": [0.028, 0.03]},
    )


def manifest_tree() -> dict[str, Any]:
    """Return the same manifest as a fresh JSON tree."""
    return json.loads(make_manifest().to_json())


def message(*fields: tuple[int, bytes | int]) -> bytes:
    """Encode one protobuf message of length-delimited (bytes) and integer (int) fields."""
    encoded = b""
    for number, value in fields:
        if isinstance(value, int):
            encoded += _varint(number << 3) + _varint(value)
        else:
            encoded += _varint(number << 3 | 2) + _varint(len(value)) + value
    return encoded


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def external_tensor(location: str) -> bytes:
    """Encode a TensorProto of one float32 whose data is in another file."""
    entries = {"location": location, "offset": "0", "length": "4"}
    pairs = [message((1, key.encode()), (2, value.encode())) for key, value in entries.items()]
    return message((1, 1), (2, 1), (8, b"weight"), *((13, pair) for pair in pairs), (14, 1))


def graph_bytes(*tensors: bytes) -> bytes:
    """Encode an ONNX ModelProto whose graph holds only these initializers."""
    return message((1, 8), (7, message(*((5, tensor) for tensor in tensors), (2, b"graph"))))


def write_package(root: Path) -> Path:
    """Write a package that `read_package` accepts; its graphs hold no operators."""
    contents = {
        TARGET_GRAPH: graph_bytes(external_tensor("weights.bin")),
        "target/weights.bin": bytes(4),
        DRAFT_GRAPH: graph_bytes(),
        "tokenizer.json": b"{}\n",
        "chat_template.jinja": TEMPLATE.encode(),
    }
    for name, content in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    relist(root)
    return root


def relist(root: Path) -> None:
    """Write a manifest that matches the files as they are now."""
    files = inventory(root)
    (root / "specdec.json").write_text(make_manifest(files).to_json(), encoding="utf-8")


def edit_manifest(root: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Apply `edit` to the JSON tree of a package's manifest."""
    path = root / "specdec.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    edit(tree)
    path.write_text(json.dumps(tree), encoding="utf-8")


def assert_one_line(error: BaseException) -> str:
    """Check the shape every message has, and return it."""
    line = str(error)
    assert line
    assert "\n" not in line
    assert len(line) < 600
    return line


ABSENT = object()
"""In place of a value: leave the field out."""


def spoil(path: str, value: object) -> str:
    """Return a valid manifest as JSON, but for the value (or ABSENT) at a path like "a/b"."""
    tree = manifest_tree()
    *parents, last = path.split("/")
    node: Any = tree
    for name in parents:
        node = node[name]
    if value is ABSENT:
        del node[last]
    else:
        node[last] = value
    return json.dumps(tree)


def refusal(document: str) -> str:
    """Return the message with which a manifest is refused."""
    with pytest.raises(PackageError) as caught:
        Manifest.from_json(document)
    return assert_one_line(caught.value)


def read_refusal(root: Path, kind: type[PackageError], *words: str) -> None:
    """Check that reading fails with exactly this class and these words, in one line."""
    with pytest.raises(PackageError) as caught:
        read_package(root)
    message = assert_one_line(caught.value)
    for word in words:
        assert word in message
    special = (PackageIntegrityError, PackageVersionError)
    assert isinstance(caught.value, kind)
    assert kind in special or not isinstance(caught.value, special)
