"""Find the external data files that a graph names, and check that the manifest lists them.

An ONNX tensor may be stored in another file, its `location`. Not every ONNX Runtime confines
locations to the graph's directory: 1.22 follows `../..`, absolute paths, links, even the tag
`*/_ORT_MEM_ADDR_/*` that means "at this address in memory" (each was tried; 1.32 refuses them).
So a package is scanned before a session is made, and every location must be a listed file.

The scan walks protobuf's wire format, in which a message is a run of (tag, value) pairs with
tag = field number * 8 + wire type, and skips what it does not need by its length: weights are
never read, and no ONNX package is needed. Field numbers are those of `onnx.proto` (ONNX 1.23).
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from specdec.engines.errors import PackageError
from specdec.engines.package.fields import path_problem
from specdec.engines.package.files import open_regular, unreadable
from specdec.engines.package.strict_json import shown

__all__ = [
    "check_external_data",
    "count_operators",
    "external_locations",
    "graph_inputs",
    "graph_operators",
]

_MESSAGES: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "TensorProto": {13: "StringStringEntryProto"},
}
"""Message type -> field number -> type of the messages on the way to external data."""

_ENTRY = "StringStringEntryProto"
_KEY, _VALUE = 1, 2
_GRAPH, _INPUT, _INPUT_NAME = 7, 11, 1
"""Fields of a model, of its graph, and of an input (`ValueInfoProto`)."""
_OPERATOR, _DOMAIN = 4, 7
"""Fields of a node."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class _MalformedError(Exception):
    """The bytes are not protobuf as ONNX writes it."""


def check_external_data(graph: Path, listed: Collection[Path]) -> None:
    """Check that every external location of a graph is one of the package's listed files.

    Args:
        graph: resolved path of the graph; locations are relative to its directory.
        listed: resolved paths of the files that the manifest lists.

    Raises:
        PackageError: a location leaves the graph's directory, goes through a link out of the
            package, or is not listed; or the file is not an ONNX graph.
    """
    if graph.suffix != ".onnx":
        raise PackageError(f'{graph} is no ONNX graph by its name; allowed are names in ".onnx"')
    for location in sorted(external_locations(graph)):
        problem = path_problem(location)
        if problem is None and Path(os.path.realpath(graph.parent / location)) not in listed:
            problem = "specdec.json does not list it"
        if problem is not None:
            raise PackageError(
                f"{graph} keeps weights in {shown(location)} ({problem}); allowed are listed "
                "files beside the graph; export the package again"
            )


def external_locations(graph: Path) -> set[str]:
    """Return every external data `location` in an ONNX file, subgraphs and functions included.

    Raises:
        PackageError: the file cannot be read or is not an ONNX graph.
    """
    with _scanned(graph) as data:
        return {value.decode() for value in _locations(data)}


def graph_inputs(graph: Path) -> list[str]:
    """Names of the inputs of an ONNX file, in order; errors as `external_locations`."""
    with _scanned(graph) as data:
        return [
            data[a:b].decode()
            for number, first, last in _byte_fields(data, 0, len(data))
            if number == _GRAPH
            for field, start, end in _byte_fields(data, first, last)
            if field == _INPUT
            for inner, a, b in _byte_fields(data, start, end)
            if inner == _INPUT_NAME
        ]


def graph_operators(graph: Path) -> set[tuple[str, str]]:
    """Return (domain, name) of every node, subgraphs and functions included; "" is ONNX's.

    Raises:
        PackageError: as `external_locations`.
    """
    return set(count_operators(graph))


def count_operators(graph: Path) -> Counter[tuple[str, str]]:
    """Return the number of nodes by (domain, name), as `graph_operators`.

    Raises:
        PackageError: as `external_locations`.
    """
    with _scanned(graph) as data:
        return Counter(
            operator
            for kind, start, end in _messages(data)
            if kind == "NodeProto"
            for operator in _operators(data, start, end)
        )


@contextmanager
def _scanned(graph: Path) -> Iterator[mmap.mmap]:
    """The bytes of a graph; what goes wrong with them inside becomes a `PackageError`."""
    try:
        with open_regular(graph) as stream, _mapped(stream.fileno()) as data:
            yield data
    except OSError as error:
        raise unreadable(graph, error) from error
    except (_MalformedError, UnicodeDecodeError) as error:
        raise PackageError(
            f"{graph} is not a readable ONNX graph ({error}); "
            "allowed is an ONNX protobuf; export the package again"
        ) from error


def _mapped(descriptor: int) -> mmap.mmap:
    if os.fstat(descriptor).st_size == 0:
        raise _MalformedError("it is empty")
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


def _locations(data: mmap.mmap) -> Iterator[bytes]:
    for kind, start, end in _messages(data):
        if kind == _ENTRY:
            yield from _entry_location(data, start, end)


def _messages(data: mmap.mmap) -> Iterator[tuple[str, int, int]]:
    """Yield (type, first byte, end) of every message that `_MESSAGES` leads to."""
    pending = [("ModelProto", 0, len(data))]
    while pending:
        kind, start, end = pending.pop()
        yield kind, start, end
        children = _MESSAGES.get(kind)
        if children is None:
            continue
        for number, first, last in _byte_fields(data, start, end):
            if number in children:
                pending.append((children[number], first, last))


def _operators(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[str, str]]:
    """Yield (domain, name) of a node; of a field that is repeated, every value."""
    found = list(_byte_fields(data, start, end))
    domains = [data[a:b].decode() for number, a, b in found if number == _DOMAIN] or [""]
    names = [data[a:b].decode() for number, a, b in found if number == _OPERATOR]
    for domain in domains:
        yield from (("" if domain == "ai.onnx" else domain, name) for name in names)


def _entry_location(data: mmap.mmap, start: int, end: int) -> Iterator[bytes]:
    """Yield the value of one key-value pair if its key is "location".

    All repetitions of a field are checked, as parsers differ in which one they keep.
    """
    found = list(_byte_fields(data, start, end))
    if any(number == _KEY and data[a:b] == b"location" for number, a, b in found):
        yield from (data[a:b] for number, a, b in found if number == _VALUE)


def _byte_fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (field number, first byte, end) of each length-delimited field of a message."""
    while start < end:
        tag, start = _varint(data, start, end)
        if tag >> 32:
            raise _MalformedError(f"a tag at byte {start} is out of range")
        wire_type = tag & 7
        if wire_type == _BYTES:
            size, start = _varint(data, start, end)
            yield tag >> 3, start, start + size
            start += size
        elif wire_type == _VARINT:
            _, start = _varint(data, start, end)
        elif wire_type in (_FIXED64, _FIXED32):
            start += 8 if wire_type == _FIXED64 else 4
        else:
            raise _MalformedError(f"wire type {wire_type} at byte {start}")
    if start > end:
        raise _MalformedError(f"a field before byte {start} runs past its message")


def _varint(data: mmap.mmap, start: int, end: int) -> tuple[int, int]:
    """Read a base-128 integer, low digits first; return it and the byte after it."""
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        if start >= end:
            break
        byte = data[start]
        start += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, start
    raise _MalformedError(f"an integer before byte {start} does not end")
