"""Packages: a good one is read, and each way to spoil it is refused with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specdec.engines import (
    DeviceError,
    EngineError,
    MissingDependencyError,
    PackageError,
    PackageVersionError,
    load_package,
    read_package,
)
from tests.engines.packages import (
    DRAFT_GRAPH,
    TARGET_GRAPH,
    TEMPLATE,
    assert_one_line,
    edit_manifest,
    read_refusal,
    write_package,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_package(tmp_path / "package")


def test_a_good_package_is_read(root: Path) -> None:
    package = read_package(root)
    assert package.path == root.resolve()
    assert package.target_graph == root.resolve() / TARGET_GRAPH
    assert package.draft_graph == root.resolve() / DRAFT_GRAPH
    assert package.tokenizer_path == root.resolve() / "tokenizer.json"
    assert package.chat_template == TEMPLATE
    assert package.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert package.manifest.checks == {"greedy_mismatches": 0}


def test_reading_needs_no_onnxruntime(root: Path) -> None:
    script = (
        "import sys; sys.modules['onnxruntime'] = None; import specdec.engines as e; "
        f"print(e.read_package({str(root)!r}).manifest.target.vocab_size)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("100\n", "")


def test_a_package_may_be_reached_through_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root, target_is_directory=True)
    assert read_package(tmp_path / "link").path == root.resolve()


def test_a_link_inside_the_package_is_followed(root: Path) -> None:
    (root / "tokenizer.json").rename(root / "real.json")
    (root / "tokenizer.json").symlink_to("real.json")
    assert read_package(root).tokenizer_path == root.resolve() / "real.json"


def test_unlisted_files_are_ignored(root: Path) -> None:
    (root / "notes.txt").write_text("mine")
    os.mkfifo(root / "pipe")
    (root / "out").symlink_to("/etc/passwd")
    assert "notes.txt" not in read_package(root).files


def test_a_package_without_draft_or_template(root: Path) -> None:
    def edit(tree: dict[str, Any]) -> None:
        tree["engines"]["draft"] = None
        tree["tokenizer"]["chat_template"] = None

    edit_manifest(root, edit)
    package = read_package(root)
    assert package.draft_graph is None
    assert package.chat_template is None


# The directory and its manifest


def test_a_missing_path(tmp_path: Path) -> None:
    read_refusal(tmp_path / "absent", PackageError, "absent does not exist", "specdec-export")


def test_a_file_instead_of_a_directory(root: Path) -> None:
    read_refusal(root / "specdec.json", PackageError, "is not a directory", "holds specdec.json")


def test_a_path_no_system_accepts() -> None:
    with pytest.raises(PackageError, match="cannot be read"):
        read_package("a\0b")


def test_a_directory_without_manifest(tmp_path: Path) -> None:
    read_refusal(tmp_path, PackageError, "holds no specdec.json", "is it a specdec package?")


def test_a_manifest_that_is_not_text(root: Path) -> None:
    (root / "specdec.json").write_bytes(b'{"a": "\xff"}')
    read_refusal(root, PackageError, "specdec.json is not UTF-8 (at byte 7)")


def test_a_manifest_that_is_too_large(root: Path) -> None:
    with (root / "specdec.json").open("r+b") as stream:
        stream.truncate((8 << 20) + 1)
    read_refusal(root, PackageError, "larger than 8388608 bytes")


def test_a_manifest_cut_short(root: Path) -> None:
    path = root / "specdec.json"
    path.write_bytes(path.read_bytes()[:200])
    read_refusal(root, PackageError, "specdec.json is not JSON")


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_outside_link(path: Path) -> None:
    outside = path.parent.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)


def replace_by_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def replace_by_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.parametrize("name", ["specdec.json", "tokenizer.json"])
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (replace_by_directory, "is not a regular file"),
        (replace_by_pipe, "is not a regular file"),
        (replace_by_outside_link, "is a link that leaves the package"),
        (replace_by_device, "is a link that leaves the package"),
        (replace_by_loop, "Too many levels of symbolic links"),
    ],
)
def test_what_is_no_file_of_the_package(
    root: Path, name: str, spoil: Callable[[Path], None], words: str
) -> None:
    spoil(root / name)
    read_refusal(root, PackageError, name, words)


def test_a_newer_schema(root: Path) -> None:
    edit_manifest(root, lambda tree: tree.update(schema_version=3))
    read_refusal(root, PackageVersionError, "schema_version 3; this release reads 1 and", "upgrade")


def test_no_target(root: Path) -> None:
    edit_manifest(root, lambda tree: tree["engines"].pop("target"))
    read_refusal(root, PackageError, "engines.target is missing")


# Loading, before any engine


@pytest.mark.parametrize("engine", ["target", "draft"])
def test_a_backend_of_another_release(root: Path, engine: str) -> None:
    def edit(tree: dict[str, Any]) -> None:
        tree["engines"]["draft"]["shares_target_cache"] = False
        tree["engines"][engine]["backend"] = "another"

    edit_manifest(root, edit)
    read_package(root)
    with pytest.raises(EngineError) as caught:
        load_package(root)
    message = assert_one_line(caught.value)
    assert f"engines.{engine}.backend is 'another'" in message
    assert "this release runs onnxruntime, onnxruntime-tensorrt, tensorrt, tensorrt-rtx" in message


@pytest.mark.parametrize("options", [{"device": "tpu"}, {"draft_device": "tpu"}])
def test_an_unknown_device(root: Path, options: dict[str, str]) -> None:
    with pytest.raises(DeviceError, match="'tpu' is not understood"):
        load_package(root, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"device": "cuda"}])
def test_no_onnxruntime(
    root: Path, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match=r"pip install onnxruntime"):
        load_package(root, **options)  # type: ignore[arg-type]
