"""The site builds without a warning, documents every field, and refuses a dead link."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specdec.runtime import SamplingParams

ROOT = Path(__file__).parents[2]


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build a copy of the site in `folder`, as `make docs` does.

    Without --quiet: mkdocs counts no warnings then, and --strict does nothing.
    """
    pytest.importorskip("material", reason="the generator of the site")
    pytest.importorskip("mkdocstrings", reason="reads the docstrings")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    links = tmp_path / "build" / "typing" / "specdec"
    links.mkdir(parents=True)
    for part in ("engines", "runtime", "export", "cli"):
        (links / part).symlink_to(ROOT / part)
    return tmp_path


def test_every_option_is_documented(copy: Path) -> None:
    done = build(copy)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    page = (copy / "build" / "site" / "api.html").read_text("utf-8")
    for field in dataclasses.fields(SamplingParams):
        assert f"SamplingParams.{field.name}" in page


def test_a_dead_link_is_an_error(copy: Path) -> None:
    api = copy / "docs" / "api.md"
    api.write_text("[gone](gone.md) and [no such part](run.md#no-such-part)\n", "utf-8")
    done = build(copy)
    assert done.returncode == 1
    assert "'gone.md'" in done.stderr
    assert "no-such-part" in done.stderr
