"""External data: no graph makes ONNX Runtime open a file that the package does not list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.engines import PackageError, read_package
from specdec.engines.package.external_data import _MESSAGES, external_locations, graph_inputs
from tests.engines.packages import (
    TARGET_GRAPH,
    assert_one_line,
    edit_manifest,
    external_tensor,
    graph_bytes,
    message,
    relist,
    write_package,
)

TENSOR = external_tensor("other.bin")


def in_graph(*fields: tuple[int, bytes]) -> bytes:
    return message((7, message(*fields)))


def attribute(*fields: tuple[int, bytes]) -> tuple[int, bytes]:
    return 5, message(*fields)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_package(tmp_path / "package")


def put_graph(root: Path, content: bytes) -> None:
    (root / TARGET_GRAPH).write_bytes(content)
    relist(root)


def refusal(root: Path) -> str:
    with pytest.raises(PackageError) as caught:
        read_package(root, verify_checksums=False)
    return assert_one_line(caught.value)


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("../tokenizer.json", '".."'),
        ("../../secret", '".."'),
        ("/etc/passwd", "absolute"),
        ("..\\secret", "backslash"),
        ("*/_ORT_MEM_ADDR_/*", "does not list it"),
        ("unlisted.bin", "does not list it"),
        ("out.bin", "does not list it"),
        ("", "empty"),
        ("we\nights", "printed"),
    ],
)
def test_a_location_outside_the_listed_files(root: Path, location: str, words: str) -> None:
    put_graph(root, graph_bytes(external_tensor("weights.bin"), external_tensor(location)))
    (root / "target/unlisted.bin").write_bytes(bytes(4))
    (root / "target/out.bin").symlink_to("/etc/passwd")
    message = refusal(root)
    assert f"{TARGET_GRAPH} keeps weights in {location!r}" in message
    assert words in message


@pytest.mark.parametrize(
    "content",
    [
        in_graph((5, TENSOR)),
        in_graph((15, message((1, TENSOR)))),
        in_graph((15, message((2, TENSOR)))),
        in_graph((1, message(attribute((5, TENSOR))))),
        in_graph((1, message(attribute((10, TENSOR))))),
        in_graph((1, message(attribute((22, message((1, TENSOR))))))),
        in_graph((1, message(attribute((23, message((1, TENSOR))))))),
        in_graph((1, message(attribute((6, message((5, TENSOR))))))),
        in_graph((1, message(attribute((11, message((5, TENSOR))))))),
        message((25, message((7, message(attribute((5, TENSOR))))))),
        message((25, message((11, message((5, TENSOR)))))),
        message((20, message((1, message((5, TENSOR)))))),
        message((20, message((2, message((5, TENSOR)))))),
        message((7, b""), (7, message((5, TENSOR)))),
    ],
)
def test_every_place_a_tensor_can_hide(tmp_path: Path, content: bytes) -> None:
    graph = tmp_path / "model.onnx"
    graph.write_bytes(content)
    assert external_locations(graph) == {"other.bin"}


def test_each_of_repeated_keys_and_values_counts(tmp_path: Path) -> None:
    pair = message((1, b"location"), (2, b"first"), (1, b"offset"), (2, b"second"))
    graph = tmp_path / "model.onnx"
    graph.write_bytes(graph_bytes(message((13, pair))))
    assert external_locations(graph) == {"first", "second"}


def test_weights_inside_the_graph_are_skipped(tmp_path: Path) -> None:
    graph = tmp_path / "model.onnx"
    graph.write_bytes(graph_bytes(message((9, external_tensor("raw.bin")))))
    assert external_locations(graph) == set()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"\x3a", "does not end"),
        (b"\x3a\x7f", "runs past"),
        (b"\x3a\x02\x2a\x7f", "runs past"),
        (b"\x0d\x00", "runs past"),
        (b"\x3b", "wire type 3"),
        (b"\x08" + b"\xff" * 11, "does not end"),
        (b"\xba\x80\x80\x80\x10\x00", "out of range"),
        (graph_bytes(external_tensor("x").replace(b"x", b"\xff")), "can't decode"),
        (b"{}", "wire type 3"),
    ],
)
def test_what_is_no_graph(root: Path, content: bytes, words: str) -> None:
    put_graph(root, content)
    message = refusal(root)
    assert "is not a readable ONNX graph" in message
    assert words in message


def test_a_link_cannot_lend_a_graph_another_kind_of_file(root: Path) -> None:
    (root / TARGET_GRAPH).rename(root / "target/model.ort")
    (root / TARGET_GRAPH).symlink_to("model.ort")
    assert 'allowed are names in ".onnx"' in refusal(root)


@settings(deadline=None)
@given(content=st.binary(max_size=40))
def test_random_bytes_are_scanned_or_refused(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = tmp_path_factory.getbasetemp() / "random.onnx"
    graph.write_bytes(content)
    try:
        external_locations(graph)
    except PackageError as error:
        assert_one_line(error)


def test_the_field_numbers_are_those_of_onnx() -> None:
    onnx = pytest.importorskip("onnx")
    carriers = {*_MESSAGES, "StringStringEntryProto"}
    elsewhere = {  # pairs of text that are not external data
        ("ModelProto", "metadata_props"),
        ("GraphProto", "metadata_props"),
        ("NodeProto", "metadata_props"),
        ("FunctionProto", "metadata_props"),
        ("TensorProto", "metadata_props"),
        ("TrainingInfoProto", "initialization_binding"),
        ("TrainingInfoProto", "update_binding"),
    }
    for name, children in _MESSAGES.items():
        fields = getattr(onnx, name).DESCRIPTOR.fields
        expected = {
            field.number: field.message_type.name
            for field in fields
            if field.message_type is not None
            and field.message_type.name in carriers
            and (name, field.name) not in elsewhere
        }
        assert children == expected


def test_every_backend_that_opens_graphs_is_checked(root: Path) -> None:
    def edit(tree: dict[str, Any]) -> None:
        for engine in tree["engines"].values():
            engine["backend"] = "onnxruntime-tensorrt"

    put_graph(root, graph_bytes(external_tensor("../../secret")))
    edit_manifest(root, edit)
    assert "keeps weights in '../../secret'" in refusal(root)


def test_names_of_the_inputs(tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    inputs = [(11, message((1, name))) for name in (b"input_ids", b"logit_rows")]
    path.write_bytes(message((7, message((5, b""), *inputs, (12, message((1, b"logits")))))))
    assert graph_inputs(path) == ["input_ids", "logit_rows"]
    path.write_bytes(b"\xff\xff")
    with pytest.raises(PackageError, match="is not a readable ONNX graph"):
        graph_inputs(path)
