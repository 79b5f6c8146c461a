"""Packages the report is tried on: a tiny random model, exported for real once a session."""

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
def tiny_sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of two random models of the same shape and tokenizer."""
    pytest.importorskip("optimum.exporters.onnx", reason="exports for real")
    from tests.cli.tiny_source import write_tiny_source

    root = tmp_path_factory.mktemp("report-sources")
    return write_tiny_source(root / "one", seed=1), write_tiny_source(root / "two", seed=2)


@pytest.fixture(scope="session")
def tiny_package(tiny_sources: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first model and its INT8 self, with a short report."""
    from specdec.export import ExportOptions, export_package

    out = tmp_path_factory.mktemp("report-tiny") / "tiny"
    export_package(ExportOptions(target=str(tiny_sources[0]), draft="self", out=out, num_threads=1))
    return out


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
