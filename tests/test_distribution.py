"""Whose `specdec` is imported, and what the installed distribution is called."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from specdec.engines.release import DISTRIBUTION, VERSION
from specdec_edge import foreign_package

ROOT = Path(__file__).parents[1]
COMMANDS = ("export", "run", "audit", "bench", "inspect", "serve")


def _foreign(folder: Path, with_metadata: bool) -> None:
    (folder / "specdec").mkdir()
    (folder / "specdec" / "__init__.py").write_text("raise RuntimeError('foreign code ran')\n")
    if with_metadata:
        info = folder / "specdec-0.9.3.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: specdec\nVersion: 0.9.3\n")


def _run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    paths = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-c", f"import specdec_edge; raise SystemExit(specdec_edge.{command}())"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_foreign_is_found_here() -> None:
    assert foreign_package() is None


@pytest.mark.parametrize("command", COMMANDS)
def test_a_foreign_specdec_is_named_in_one_line(command: str, tmp_path: Path) -> None:
    _foreign(tmp_path, with_metadata=True)
    done = _run(tmp_path, command)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "specdec" / "__init__.py") in done.stderr
    assert "the distribution specdec 0.9.3, another author's package" in done.stderr
    assert "pip uninstall specdec" in done.stderr


def test_a_stray_folder_is_named_too(tmp_path: Path) -> None:
    _foreign(tmp_path, with_metadata=False)
    assert str(tmp_path / "specdec" / "__init__.py") in _run(tmp_path, "run").stderr


def test_the_project_is_named_as_the_release_says() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'name = "{DISTRIBUTION}"' in text
    assert 'attr = "specdec.engines.release.VERSION"' in text
    assert f"## {VERSION}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_nothing_tells_anyone_to_install_the_name_from_an_index() -> None:
    """Neither the foreign package's name nor ours, which no index serves yet."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.cpp", "*.h", "*.hpp", "*.toml", "*.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = []
    for name in listed.stdout.split():
        text = (ROOT / name).read_text(encoding="utf-8")
        found += [
            (name, match[0])
            for match in re.finditer(r"(?<!un)install [^\n]{0,20}?\bspecdec(-edge)?\[", text)
        ]
    assert found == []
