"""The result of an export: the package, its figures, and a summary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.engines.package.manifest import Manifest
from specdec.runtime.report.contents import Report
from specdec.runtime.report.drawing.words import engine_words
from specdec.runtime.report.inspection import stored_report

__all__ = ["ExportReport"]


@dataclass(frozen=True)
class ExportReport:
    """A finished package and its measured figures."""

    path: Path
    manifest: Manifest
    size: int
    """Bytes of all files."""
    seconds: float

    @property
    def measured(self) -> Report | None:
        """The report of the pair; None when nothing was measured."""
        return stored_report(self.manifest)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data."""
        return {
            "package": str(self.path),
            "bytes": self.size,
            "seconds": round(self.seconds, 1),
            "source": dict(self.manifest.source),
            "checks": dict(self.manifest.checks),
            "costs": dict(self.manifest.costs),
        }

    def summary_lines(self) -> list[str]:
        """A few lines for a person."""
        lines = [
            f"package  {self.path} ({self.size / 1e6:.0f} MB, {self.seconds:.0f} s)",
            f"target   {engine_words(self.manifest.target)}",
        ]
        checks, costs = self.manifest.checks, self.manifest.costs
        original = checks.get("target_vs_original") or {}
        if original:
            lines.append(
                f"         argmax agreement with the original weights "
                f"{original['argmax_agreement']:.3f}, KL {original['kl_divergence']:.2g}"
            )
        if self.manifest.draft is not None:
            lines.append(f"draft    {engine_words(self.manifest.draft)}")
            lines += _draft_lines(checks, costs)
        lines += [f"note     {note}" for note in checks.get("notes", [])]
        return lines + [f"problem  {problem}" for problem in checks.get("problems", [])]


def _draft_lines(checks: Any, costs: Any) -> list[str]:
    lines = []
    overlap = checks.get("draft_vs_target") or {}
    if overlap:
        lines.append(
            f"         argmax agreement with the target {overlap['argmax_agreement']:.3f}, "
            f"overlap of distributions {overlap['overlap']:.3f}"
        )
    draft = costs.get("draft_seconds")
    target = (costs.get("verify_seconds") or {}).get("1")
    if draft and target:
        lines.append(
            f"         one step takes {draft * 1e3:.1f} ms, {draft / target:.2f} of the "
            f"target's {target * 1e3:.1f} ms"
        )
    return lines
