"""An export that ends early leaves nothing: Ctrl-C at any step, a kill, a failed overwrite."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specdec.engines.errors import PackageError
from specdec.engines.load import load_package
from specdec.export import ExportOptions, SilentProgress, export_package
from specdec.export.staging import staged
from tests.export.exporting import export
from tests.export.tiny_models import write_model

OPTIONS = {"target_precision": "fp32", "num_threads": 1, "report": "none"}


class Interrupting(SilentProgress):
    """Raises `KeyboardInterrupt` when the `count`-th step begins, or when it ends."""

    def __init__(self, count: int, at_end: bool) -> None:
        self.count, self.at_end = count, at_end
        self.steps: list[str] = []

    @contextmanager
    def step(self, name: str, total: float | None = None) -> Iterator[SilentProgress]:
        self.steps.append(name)
        now = len(self.steps) == self.count
        if now and not self.at_end:
            raise KeyboardInterrupt
        yield self
        if now:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("llama") / "source", "llama")


@pytest.fixture(scope="module")
def steps(source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of the steps of an export, in order."""
    progress = Interrupting(0, False)
    out = tmp_path_factory.mktemp("steps") / "package"
    export_package(ExportOptions(str(source), "self", out, **OPTIONS), progress)
    return progress.steps


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("at_end", [False, True])
def test_ctrl_c_at_any_step_leaves_nothing(
    source: Path, steps: list[str], tmp_path: Path, at_end: bool
) -> None:
    assert len(steps) > 4
    for count in range(1, len(steps) + 1):
        progress = Interrupting(count, at_end)
        options = ExportOptions(str(source), "self", tmp_path / "out" / "package", **OPTIONS)
        with pytest.raises(KeyboardInterrupt):
            export_package(options, progress)
        assert progress.steps == steps[:count]
        assert list((tmp_path / "out").iterdir()) == [], steps[count - 1]


@pytest.fixture
def package(source: Path, tmp_path: Path) -> Path:
    """A package alone in its folder."""
    return export(source, tmp_path / "out" / "package", "none").path


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()


def test_a_package_survives_an_overwrite_that_fails(
    source: Path, steps: list[str], package: Path
) -> None:
    before = snapshot(package.parent)
    for count in range(1, len(steps) + 1):
        options = ExportOptions(str(source), "self", package, overwrite=True, **OPTIONS)
        with pytest.raises(KeyboardInterrupt):
            export_package(options, Interrupting(count, True))
        assert snapshot(package.parent) == before, steps[count - 1]
    load_package(package, num_threads=1).close()


def test_an_overwrite_replaces_the_whole_package(source: Path, package: Path) -> None:
    (package / "mine.txt").write_text("an unlisted file goes with the package")
    report = export(source, package, "self", overwrite=True)
    assert list(package.parent.iterdir()) == [package]
    assert not (package / "mine.txt").exists()
    with load_package(package, num_threads=1) as loaded:
        assert loaded.manifest == report.manifest
        assert loaded.draft is not None


def test_an_empty_directory_is_a_place_to_write(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "package").mkdir()
    export(source, tmp_path / "out" / "package", "none")
    load_package(tmp_path / "out" / "package", num_threads=1).close()


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_package_comes_back_if_the_last_rename_fails(
    package: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    before = snapshot(package.parent)
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if "partial" in self.name:
            raise OSError("no")
        return rename(self, target)

    def refusing(first: Path, second: Path) -> bool:
        if can_exchange:
            raise OSError("no")
        return False

    monkeypatch.setattr(Path, "rename", failing)
    monkeypatch.setattr("specdec.export.staging.exchange", refusing)
    with pytest.raises(OSError, match="no"), staged(package, overwrite=True) as scratch:
        (scratch / "new").write_text("new")
    assert snapshot(package.parent) == before


KILLED = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
from specdec.export import ExportOptions, SilentProgress, export_package

class Killed(SilentProgress):
    @contextmanager
    def step(self, name, total=None):
        yield self
        if name == sys.argv[3]:
            os.kill(os.getpid(), signal.SIGKILL)

source, out = sys.argv[1], Path(sys.argv[2])
export_package(ExportOptions(source, "self", out, num_threads=1, report="none"), Killed())
"""


def test_a_killed_export_leaves_nothing_that_loads(
    source: Path, steps: list[str], tmp_path: Path
) -> None:
    """Killed in its very last step, when every file is written; the next export cleans up."""
    out = tmp_path / "out" / "package"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(source), str(out), steps[-1]],
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = out.parent.iterdir()
    assert left.name.startswith(".package.partial-")
    for folder in (out, left, *left.iterdir()):
        with pytest.raises(PackageError):
            load_package(folder)
    export(source, out, "none")
    assert list(out.parent.iterdir()) == [out]
