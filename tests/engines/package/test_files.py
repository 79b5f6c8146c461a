"""Files of a package: damage is noticed, and the inventory lists what ships."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.engines import (
    FileEntry,
    PackageError,
    PackageIntegrityError,
    hash_file,
    inventory,
    read_package,
)
from tests.engines.packages import (
    DRAFT_GRAPH,
    TARGET_GRAPH,
    assert_one_line,
    edit_manifest,
    read_refusal,
    relist,
    write_package,
)

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_package(tmp_path / "package")


# The files


def test_a_missing_file(root: Path) -> None:
    (root / "tokenizer.json").unlink()
    read_refusal(root, PackageIntegrityError, "tokenizer.json is missing", "copy the package again")


def test_a_link_to_nothing(root: Path) -> None:
    (root / "tokenizer.json").unlink()
    (root / "tokenizer.json").symlink_to("gone")
    read_refusal(root, PackageIntegrityError, "tokenizer.json is missing")


def test_a_truncated_file(root: Path) -> None:
    (root / "target/weights.bin").write_bytes(bytes(3))
    read_refusal(root, PackageIntegrityError, "weights.bin has 3 bytes; specdec.json lists 4")


def test_an_altered_file(root: Path) -> None:
    (root / "tokenizer.json").write_bytes(b"[]\n")
    read_refusal(root, PackageIntegrityError, "tokenizer.json was altered", "SHA-256")
    assert read_package(root, verify_checksums=False).tokenizer_path.read_bytes() == b"[]\n"


def test_sizes_are_checked_even_without_checksums(root: Path) -> None:
    (root / "tokenizer.json").write_bytes(b"[]")
    with pytest.raises(PackageIntegrityError, match="has 2 bytes"):
        read_package(root, verify_checksums=False)


def test_a_file_used_as_a_directory(root: Path) -> None:
    def edit(tree: dict[str, Any]) -> None:
        tree["files"]["tokenizer.json/x"] = {"size": 0, "sha256": EMPTY_SHA256}

    edit_manifest(root, edit)
    read_refusal(root, PackageError, "tokenizer.json/x cannot be read (Not a directory)")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission(root: Path) -> None:
    (root / "tokenizer.json").chmod(0)
    read_refusal(root, PackageError, "tokenizer.json cannot be read (Permission denied)")


def test_a_template_that_is_not_text(root: Path) -> None:
    (root / "chat_template.jinja").write_bytes(b"\xff")
    relist(root)
    read_refusal(root, PackageError, "chat_template.jinja is not UTF-8")


def test_a_template_that_is_too_large(root: Path) -> None:
    (root / "chat_template.jinja").write_bytes(bytes((1 << 20) + 1))
    relist(root)
    read_refusal(root, PackageError, "chat_template.jinja is larger than 1048576 bytes")


@settings(deadline=None)
@given(data=st.data())
def test_any_byte_changed_anywhere_is_noticed(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.getbasetemp() / "changed"
    name = data.draw(st.sampled_from(sorted(read_package(write_package(root)).files)))
    content = bytearray((root / name).read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    (root / name).write_bytes(content)
    with pytest.raises(PackageError) as caught:
        read_package(root)
    assert_one_line(caught.value)


# The inventory


def test_the_inventory_lists_every_file_but_the_manifest(root: Path) -> None:
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/.hidden").write_bytes(b"")
    found = inventory(root)
    assert list(found) == sorted(found)
    assert found["a/b/.hidden"] == FileEntry(0, EMPTY_SHA256)
    assert set(found) == {
        "a/b/.hidden",
        TARGET_GRAPH,
        "target/weights.bin",
        DRAFT_GRAPH,
        "tokenizer.json",
        "chat_template.jinja",
    }


def test_hash_file_reads_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(bytes((1 << 20) + 3))
    whole = hashlib.sha256(bytes((1 << 20) + 3)).hexdigest()
    assert hash_file(path) == FileEntry((1 << 20) + 3, whole)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: Path(path).symlink_to("specdec.json")])
def test_the_inventory_refuses_what_cannot_be_shipped(
    root: Path, make: Callable[[Path], None]
) -> None:
    make(root / "odd")
    with pytest.raises(PackageError, match=r"odd is (not a regular file|a link)"):
        inventory(root)
