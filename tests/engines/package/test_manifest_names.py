"""Names of files in a manifest: portable, inside the package, each a file of its own."""

from __future__ import annotations

import json

import pytest

from specdec.engines.package.fields import path_problem
from tests.engines.packages import manifest_tree, refusal


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "empty"),
        ("/etc/passwd", "absolute"),
        ("../secret", '".."'),
        ("target/../../secret", '".."'),
        ("./target", '"."'),
        ("target//model", "empty"),
        ("target/", "empty"),
        ("..\\secret", "backslash"),
        ("C:/secret", "colon"),
        ("a\x00b", "printed"),
        ("a\nb", "printed"),
        ("a\u202eb", "printed"),
        ("target /model", "space"),
        ("target/model.", "dot"),
        ("a" * 256, "longer"),
        ("a/" * 600 + "a", "longer"),
    ],
)
def test_a_file_name_stays_inside(name: str, words: str) -> None:
    problem = path_problem(name)
    assert problem is not None
    assert words in problem
    tree = manifest_tree()
    tree["files"][name] = {"size": 0, "sha256": "0" * 64}
    assert "stays inside" in refusal(json.dumps(tree))


@pytest.mark.parametrize("name", ["model.onnx", "a/b/c", ".hidden", "..a", "é/ü", "a b", "a" * 255])
def test_ordinary_file_names_are_allowed(name: str) -> None:
    assert path_problem(name) is None


@pytest.mark.parametrize("twin", ["TOKENIZER.json", "to\u212aenizer.json"])
def test_names_that_one_file_system_confuses_are_refused(twin: str) -> None:
    tree = manifest_tree()
    tree["files"][twin] = {"size": 0, "sha256": "0" * 64}
    assert "differ in more than case" in refusal(json.dumps(tree))


@pytest.mark.parametrize("name", ["specdec.json", "SPECDEC.JSON"])
def test_the_manifest_does_not_list_itself(name: str) -> None:
    tree = manifest_tree()
    tree["files"][name] = {"size": 0, "sha256": "0" * 64}
    assert "every file but the manifest" in refusal(json.dumps(tree))
