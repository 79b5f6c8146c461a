"""The end of an export: check the finished engines, then measure and judge the pair."""

from __future__ import annotations

import time
from collections.abc import Sequence

from specdec.engines.load import Package, load_engines
from specdec.export.checks.checks import CheckReport, check_engines
from specdec.export.checks.device import check_device, is_measured_here
from specdec.export.checks.reference import Reference
from specdec.export.errors import ExportCheckError
from specdec.export.options import ExportOptions
from specdec.export.progress import Progress
from specdec.runtime.report.contents import Candidate, Report
from specdec.runtime.report.measure import measure_package
from specdec.runtime.report.records import to_data
from specdec.runtime.report.seed_costs import seed_costs
from specdec.runtime.report.verdict import best_measured

__all__ = ["check_and_measure"]


def check_and_measure(
    package: Package,
    options: ExportOptions,
    references: tuple[Reference, Reference | None],
    candidates: Sequence[Candidate],
    progress: Progress,
    problems: Sequence[str] = (),
) -> CheckReport:
    """Load the engines of a package that is about to be finished, check and measure them.

    Args:
        package: what will be written; its manifest lacks the figures and is not on disk yet.
        options: of the export; `report` says how much is measured.
        references: the original logits of the target, and of a draft that is another model.
        candidates: draft recipes that were tried.
        progress: receives the steps.
        problems: what was found wrong before the engines ran.

    Returns:
        The figures of checks and report, and the costs, for the manifest.

    Raises:
        ExportCheckError: the engines are wrong and `options.force` is not set, or the pair is
            slower than `options.require_speedup`.
    """
    started = time.perf_counter()
    device, timed = check_device(options), is_measured_here(options)
    with load_engines(package, device=device, num_threads=options.num_threads) as loaded:
        load_seconds = time.perf_counter() - started
        with progress.step("check the engines"):
            shares = loaded.draft_shares_cache
            checked = check_engines(loaded.target, loaded.draft, shares, *references, timed=timed)
        checked.problems[:0] = problems
        if checked.problems and not options.force:
            raise ExportCheckError(
                f"the engines failed their checks: {'; '.join(checked.problems)}; "
                "nothing was written (--force writes the package all the same)"
            )
        finite = not any("not finite" in problem for problem in checked.problems)
        if options.report != "none" and finite and timed:
            report = measure_package(
                loaded,
                level=options.report,
                load_seconds=load_seconds,
                num_threads=options.num_threads,
                problems=checked.problems,
                candidates=candidates,
                step=progress.step,
            )
            checked.figures["report"] = to_data(report)
            checked.costs.update(seed_costs(report))
            _refuse(report, options)
    return checked


def _refuse(report: Report, options: ExportOptions) -> None:
    """Raise when the package must not be written."""
    if report.verdict.decision == "unsafe" and not options.force:
        raise ExportCheckError(
            f"the pair is unsafe: {'; '.join(report.verdict.reasons)}; nothing was written "
            "(--force writes the package all the same)"
        )
    best, required = best_measured(report.measured), options.require_speedup
    if required is not None and best.speedup < required:
        raise ExportCheckError(
            f"the pair measured {best.speedup:.2f} times the speed of the target alone "
            f"(95 % interval {best.low:.2f} to {best.high:.2f}), below --require-speedup "
            f"{required:g}; nothing was written; {report.verdict.changes[0]}"
        )
