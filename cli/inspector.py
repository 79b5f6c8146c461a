"""`specdec-inspect`: what is in a package, how it was made, and whether it is worth it here."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdec.cli.command import specdec_command
from specdec.cli.common import EXIT_DONE, error_console, invoke
from specdec.cli.options.given import refuse_without_effect
from specdec.cli.options.loading import ort_options, placement_names, placement_options
from specdec.cli.options.table import SHARED, with_options

if TYPE_CHECKING:
    from specdec.engines.load import Package
    from specdec.runtime.report import Report

__all__ = ["command", "main"]


def main() -> None:
    """Run the command as a process."""
    sys.exit(invoke(command))


@specdec_command("specdec-inspect")
@click.argument("path", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--measure",
    "level",
    type=click.Choice(["short", "full"]),
    help="Measure on this machine now, about half a minute or some minutes, instead of showing "
    "the report that is stored in the package.",
)
@click.option("--save", is_flag=True, help="Store what was measured in the package.")
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the report as one self-contained page.",
)
@placement_options
@with_options(
    SHARED["no_checksums"],
    SHARED["json"].but(help="One JSON document, of the schema docs/report.schema.json."),
)
def command(
    path: Path, level: str | None, save: bool, html: Path | None, as_json: bool, **options: Any
) -> int:
    """Show the package DIR and its report."""
    if level is None:
        if save:
            raise click.UsageError("--save stores a new measurement; add --measure short or full")
        refuse_without_effect("without --measure", *placement_names)
    from specdec.engines.load import read_package
    from specdec.engines.storage.writing import check_output, write_file
    from specdec.runtime.report.inspection import inspect_package
    from specdec.runtime.report.records import to_data

    if html is not None:
        check_output(html)
    package = read_package(path, verify_checksums=not options["no_checksums"])
    report = None if level is None else _measure(package, level, options)
    if save and report is not None:
        _save(package, report)
    inspection = inspect_package(package, report)
    if html is not None:
        from specdec.runtime.report.drawing.page import render_page

        write_file(html, render_page(inspection))
    if as_json:
        click.echo(json.dumps(to_data(inspection), ensure_ascii=False, allow_nan=False))
        return EXIT_DONE
    from rich.console import Console

    from specdec.cli.views.report import print_inspection

    print_inspection(Console(highlight=False), inspection)
    if html is not None:
        error_console().print(f"wrote {html}", markup=False, soft_wrap=True)
    return EXIT_DONE


def _measure(package: Package, level: Any, options: dict[str, Any]) -> Report:
    from specdec.cli.views.progress import for_console
    from specdec.engines.load import load_package
    from specdec.runtime.report import measure_package
    from specdec.runtime.report.inspection import stored_report
    from specdec.runtime.report.measuring.memory import resident_memory

    progress = for_console(error_console())
    stored = stored_report(package.manifest)
    started = time.perf_counter()
    with load_package(
        package.path,
        device=options["device"],
        draft_device=options["draft_device"],
        num_threads=options["num_threads"],
        verify_checksums=False,
        ort=ort_options(options),
    ) as loaded:
        return measure_package(
            loaded,
            level=level,
            load_seconds=time.perf_counter() - started,
            resident=resident_memory(),
            num_threads=options["num_threads"],
            candidates=() if stored is None else stored.candidates,
            step=progress.step,
        )


def _save(package: Package, report: Report) -> None:
    from dataclasses import replace

    from specdec.engines.package.manifest import write_manifest
    from specdec.runtime.report.records import to_data
    from specdec.runtime.report.seed_costs import seed_costs

    manifest = package.manifest
    checks = {**manifest.checks, "report": to_data(report)}
    costs = {**manifest.costs, **seed_costs(report)}
    write_manifest(package.path, replace(manifest, checks=checks, costs=costs))
