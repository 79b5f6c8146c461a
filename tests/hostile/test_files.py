"""Files in the way of a writer: links, leftovers, a full disk, names that appear meanwhile."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import pytest

from specdec.engines.errors import OutputError, PackageError
from specdec.engines.package.manifest import write_manifest
from specdec.engines.storage import writing
from specdec.engines.storage.writing import readable_size, sync_tree, write_file
from specdec.export.errors import ExportError, ExportOptionError
from specdec.export.staging import staged
from tests.engines.packages import make_manifest
from tests.hostile.injector import ROOT
from tests.hostile.kills import fail_everywhere


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("name", ["specdec.json.partial", ".specdec.json.part-0"])
def test_an_unlisted_link_is_not_followed(tmp_path: Path, name: str) -> None:
    victim, package = tmp_path / "victim", tmp_path / "package"
    victim.write_text("precious")
    package.mkdir()
    (package / name).symlink_to(victim)
    write_manifest(package, make_manifest())
    assert victim.read_text() == "precious"
    assert (package / name).is_symlink()
    assert stat.S_ISREG((package / "specdec.json").lstat().st_mode)


def test_a_manifest_that_is_a_link_is_not_written(tmp_path: Path) -> None:
    victim, package = tmp_path / "victim", tmp_path / "package"
    victim.write_text("precious")
    package.mkdir()
    (package / "specdec.json").symlink_to(victim)
    with pytest.raises(PackageError, match="is a link; allowed is a new name or a regular file"):
        write_manifest(package, make_manifest())
    assert victim.read_text() == "precious"


def test_devices_and_links_are_no_places_to_write(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name, kind in (("link", "a link"), ("pipe", "no regular file"), (".", "no regular file")):
        with pytest.raises(OutputError, match=f"is {kind}; allowed is a new name"):
            write_file(tmp_path / name, "text")
    with pytest.raises(OutputError, match="there is no directory"):
        write_file(tmp_path / "absent" / "file", "text")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "pipe"]


def test_the_mode_of_a_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, "old")
    path.chmod(0o640)
    write_file(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)


def test_a_full_disk_leaves_the_old_file_and_its_name_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_file(path, "old")
    free = readable_size(1.5e6)

    def check(moment: int, error: BaseException | None) -> None:
        assert list(tmp_path.iterdir()) == [path], moment
        if error is None:
            return
        assert isinstance(error, OutputError)
        assert str(error).startswith(
            f"{path} cannot be written: the disk is full; it takes 1.5 kB and "
        )
        assert str(error).endswith(" are free: free some, or name another place")
        assert path.read_text() in ("old", "n" * 1500)

    assert free == "1.5 MB"
    # write, fsync of the file, fsync of the directory
    assert fail_everywhere(lambda: None, lambda: write_file(path, "n" * 1500), check, full) == 3


@pytest.mark.parametrize("existing", [False, True])
def test_a_full_disk_ends_an_export_with_nothing_lost(tmp_path: Path, existing: bool) -> None:
    out = tmp_path / "package"

    def make(text: str) -> None:
        with staged(out, overwrite=existing) as scratch:
            write_file(scratch / "specdec.json", text)

    def prepare() -> None:
        if existing and not out.exists():
            make("old")

    def check(moment: int, error: BaseException | None) -> None:
        assert [p for p in tmp_path.iterdir() if p != out] == [], moment
        if error is None or (out / "specdec.json").is_file():
            assert (out / "specdec.json").read_text() in ("old", "new")
        if error is not None:
            assert isinstance(error, ExportError)
            assert str(error).startswith(f"the disk of {out} is full: the export had written ")
        if not existing and out.exists():
            (out / "specdec.json").unlink()
            out.rmdir()

    assert fail_everywhere(prepare, lambda: make("new"), check, full) == 6


def test_what_appears_during_an_export_stays(tmp_path: Path) -> None:
    out = tmp_path / "package"

    def export() -> None:
        with staged(out) as scratch:
            (scratch / "specdec.json").write_text("new")
            out.mkdir()
            (out / "mine").write_text("mine")

    with pytest.raises(ExportOptionError, match="is not a specdec package"):
        export()
    assert [path.name for path in tmp_path.rglob("*")] == ["package", "mine"]


def test_what_appears_between_look_and_rename_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "package"

    def appearing(out: Path, *, overwrite: bool) -> None:
        out.mkdir()
        (out / "mine").write_text("mine")

    monkeypatch.setattr("specdec.export.staging.check_destination", appearing)
    with pytest.raises(ExportError, match="made by something else"), staged(out) as scratch:
        (scratch / "specdec.json").write_text("new")
    assert [path.name for path in tmp_path.rglob("*")] == ["package", "mine"]


def test_a_leftover_of_the_same_process_id_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f".package.partial-{os.getpid()}"
    left.mkdir()
    (left / "weights").write_text("half")
    with staged(tmp_path / "package") as scratch:
        assert scratch != left
        (scratch / "specdec.json").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["package"]


def test_two_exports_of_one_name_do_not_remove_each_other(tmp_path: Path) -> None:
    out = tmp_path / "package"
    with staged(out) as first:
        with staged(tmp_path / "package", overwrite=True) as second:
            assert (first.is_dir(), second.is_dir()) == (True, True)
        assert first.is_dir()
        out.rmdir()
        (first / "specdec.json").write_text("first")
    assert (out / "specdec.json").read_text() == "first"


def test_everything_of_a_package_reaches_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "model.onnx").write_text("graph")
    monkeypatch.setattr(writing.os, "fsync", noting)
    sync_tree(tmp_path)
    assert synced == [str(tmp_path / "target/model.onnx"), str(tmp_path / "target"), str(tmp_path)]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (5e7, "50.0 MB")]
)
def test_sizes_are_readable(count: int, text: str) -> None:
    assert readable_size(count) == text


def test_nothing_writes_files_in_another_way() -> None:
    """Scratch files of libraries below a staged directory aside: those are written by libraries."""
    other = re.compile(r"\.write_(text|bytes)\(|open\([^)\n]*[\"'][wax]b?\+?[\"']")
    found = [
        f"{path}: {line.strip()}"
        for part in ("engines", "runtime", "export", "cli")
        for path in sorted((ROOT / part).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if other.search(line) and "os.devnull" not in line  # keeps nothing
    ]
    assert found == []


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    write_file(path, "old", replaces=False)
    with pytest.raises(OutputError, match=r"talk\.json is there already; name another file"):
        write_file(path, "new", replaces=False)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
