"""Strict JSON: what Python's reader would let pass, and random damage to a manifest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.engines import Manifest, PackageError
from specdec.engines.package.strict_json import MAX_DEPTH
from tests.engines.packages import assert_one_line, make_manifest, manifest_tree, refusal, spoil


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("\ufeff{}", "not JSON"),
        ("{} {}", "not JSON"),
        ("[]", "an array of 0 items; allowed is an object"),
        ("null", "null; allowed is an object"),
        ('{"a": 1, "a": 2}', "'a' twice"),
        ('{"source": {"b": {"c": 1, "c": 1}}}', "'c' twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "-Infinity"),
        ('{"a": 1e400}', "1e400"),
        ('{"a": ' + "9" * 5000 + "}", "an integer of 5000 digits"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"\\udfff": 1}', "surrogate"),
        ("[" * 100_000, "deeper than 64"),
        ('{"a": ' * 65 + "1" + "}" * 65, "deeper than 64"),
        ('{"a": ' * 500 + "1" + "}" * 500, "deeper than 64"),
    ],
)
def test_json_is_read_strictly(document: str, words: str) -> None:
    assert words in refusal(document)


def test_nesting_up_to_the_limit_is_read() -> None:
    nested: dict[str, Any] = {}
    for _ in range(MAX_DEPTH - 2):  # the manifest and `source` are two levels
        nested = {"a": nested}
    assert Manifest.from_json(spoil("source", nested)).source == nested
    assert "deeper" in refusal(spoil("source", {"a": nested}))


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(max_size=8)
    | st.sampled_from(["../a", "a\\b", "tokenizer.json", "in_place", "fp16", "target/model.onnx"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(node: Any) -> list[tuple[Any, Any]]:
    """List every (container, key) of a JSON tree."""
    keys = list(node) if isinstance(node, dict) else range(len(node))
    found = [(node, key) for key in keys]
    for key in keys:
        if isinstance(node[key], (dict, list)):
            found += places(node[key])
    return found


@settings(deadline=None)
@given(st.data())
def test_random_changes_load_or_are_refused(data: st.DataObject) -> None:
    tree = manifest_tree()
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(tree)))
        change = data.draw(st.sampled_from(["replace", "delete", "add"]))
        if change == "delete":
            del container[key]
        elif change == "add" and isinstance(container, dict):
            container[data.draw(st.text(max_size=8))] = data.draw(JSON_VALUES)
        else:
            container[key] = data.draw(JSON_VALUES)
        if not tree:
            break
    load_or_refuse(json.dumps(tree))


@settings(deadline=None)
@given(st.data())
def test_random_edits_of_the_text_load_or_are_refused(data: st.DataObject) -> None:
    document = make_manifest().to_json()
    start = data.draw(st.integers(0, len(document)))
    end = data.draw(st.integers(start, min(len(document), start + 40)))
    load_or_refuse(document[:start] + data.draw(st.text(max_size=4)) + document[end:])


def load_or_refuse(document: str) -> None:
    try:
        manifest = Manifest.from_json(document)
    except PackageError as error:
        assert_one_line(error)
    else:
        assert Manifest.from_json(manifest.to_json()) == manifest
