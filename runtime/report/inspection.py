"""The record of a package that `specdec-inspect` shows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from specdec.engines.load import Package
from specdec.engines.native.load import engine_here
from specdec.engines.package.manifest import EngineEntry, GenerationEntry, Manifest
from specdec.runtime.report.contents import Report
from specdec.runtime.report.measuring.machine import cpu_name
from specdec.runtime.report.records import from_data

__all__ = ["Inspection", "SourceWeights", "inspect_package", "stored_report"]


@dataclass(frozen=True)
class SourceWeights:
    """How far an engine's weights were traced to the files it was made from."""

    engine: str
    """"target" or "draft"."""
    in_source: int
    """Tensors in the files."""
    loaded: int
    """Parameters that came from one of them."""
    tied: int
    """Parameters that are another one's twin."""
    left_over: int
    """Tensors that are no part of the model, known as such."""
    parameters_compared: int
    """Parameters of which some values were found in the engine as the file has them."""
    values_compared: int
    """Those values."""

    @property
    def words(self) -> str:
        """For a person."""
        rest = f", {self.left_over} left over" if self.left_over else ""
        tied = f", {self.tied} tied" if self.tied else ""
        return (
            f"{self.engine}: {self.in_source} tensors accounted for ({self.loaded} parameters"
            f"{tied}{rest}), {self.values_compared} values of {self.parameters_compared} "
            "compared with the file"
        )


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
    engines: dict[str, str]
    """What would run "target" and "draft" on this machine's CPU, and if not native, why."""
    weights: tuple[SourceWeights, ...]
    """Empty for a package that does not say."""
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
        engines={
            name: engine_here(entry)
            for name, entry in (("target", manifest.target), ("draft", manifest.draft))
            if entry is not None
        },
        weights=_weights(manifest.checks.get("source")),
        notes=tuple(str(note) for note in notes) if isinstance(notes, list) else (),
        report=report,
        measured_here=report is not None and report.machine.cpu == cpu_name(),
    )


def _weights(data: Any) -> tuple[SourceWeights, ...]:
    """What an export recorded of its sources; counts that are missing are 0."""
    names = [field.name for field in fields(SourceWeights) if field.name != "engine"]
    found = []
    for engine, counts in data.items() if isinstance(data, dict) else ():
        if isinstance(counts, dict):
            values = [counts.get(name) for name in names]
            found.append(SourceWeights(engine, *(v if isinstance(v, int) else 0 for v in values)))
    return tuple(found)


def stored_report(manifest: Manifest) -> Report | None:
    """The report that an export or `specdec-inspect --save` left in a package.

    Raises:
        PackageError: it is malformed.
    """
    data = manifest.checks.get("report")
    return None if data is None else from_data(Report, data)
