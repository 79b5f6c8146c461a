"""The report of the tiny package, and copies of the package to alter."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from specdec.engines import Manifest, inventory, write_manifest
from specdec.runtime.report import Report, from_data

Exporter = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny_report(tiny_package: Path) -> Report:
    """The report the export stored."""
    checks = json.loads((tiny_package / "specdec.json").read_text(encoding="utf-8"))["checks"]
    return from_data(Report, checks["report"])


@pytest.fixture
def copied(tiny_package: Path, tmp_path: Path) -> Path:
    """A copy of the tiny package that a test may change."""
    return Path(shutil.copytree(tiny_package, tmp_path / "copied"))


def renew_manifest(package: Path) -> None:
    """Make the manifest's checksums those of the files, as one who alters a package would."""
    manifest = Manifest.from_json((package / "specdec.json").read_text(encoding="utf-8"))
    write_manifest(package, replace(manifest, files=inventory(package)))
