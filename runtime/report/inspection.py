"""The record of a package that `specdec-inspect` shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specdec.engines.load import Package
from specdec.engines.package.manifest import EngineEntry, GenerationEntry, Manifest
from specdec.runtime.report.contents import Report
from specdec.runtime.report.measuring.machine import cpu_name
from specdec.runtime.report.records import from_data

__all__ = ["Inspection", "inspect_package", "stored_report"]


@dataclass(frozen=True)
class Inspection:
    """What is in a package, how it was made, and its report."""

    name: str
    """Of the directory."""
    size: int
    """Bytes of all files."""
    specdec_version: str
    """That wrote the package."""
    target: EngineEntry
    draft: EngineEntry | None
    generation: GenerationEntry
    """The model's own defaults: options to ask for, and bans that always hold."""
    source: dict[str, Any]
    """What the package was made from, and how."""
    notes: tuple[str, ...]
    """Notes of the export."""
    report: Report | None
    """Null until something is measured."""
    measured_here: bool
    """Whether the report is of a CPU like this machine's."""


def inspect_package(package: Package, report: Report | None = None) -> Inspection:
    """Describe a package.

    Args:
        package: verified.
        report: measured just now; None takes the one stored in the package, if any.

    Raises:
        PackageError: the stored report is malformed.
    """
    manifest = package.manifest
    report = report or stored_report(manifest)
    notes = manifest.checks.get("notes", [])
    return Inspection(
        name=package.path.name,
        size=sum(entry.size for entry in manifest.files.values()),
        specdec_version=manifest.specdec_version,
        target=manifest.target,
        draft=manifest.draft,
        generation=manifest.generation,
        source=dict(manifest.source),
        notes=tuple(str(note) for note in notes) if isinstance(notes, list) else (),
        report=report,
        measured_here=report is not None and report.machine.cpu == cpu_name(),
    )


def stored_report(manifest: Manifest) -> Report | None:
    """The report that an export or `specdec-inspect --save` left in a package.

    Raises:
        PackageError: it is malformed.
    """
    data = manifest.checks.get("report")
    return None if data is None else from_data(Report, data)
