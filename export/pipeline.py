"""Run the export from end to end: from two model sources to one checked package."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specdec.engines.load import Package, read_package
from specdec.engines.package.manifest import Manifest, inventory, write_manifest
from specdec.engines.release import DISTRIBUTION, VERSION
from specdec.export.building import Pair, build_pair
from specdec.export.checks.measuring import check_and_measure
from specdec.export.checks.weights import source_record
from specdec.export.memory import release_memory
from specdec.export.options import ExportOptions
from specdec.export.preflight import Plan, preflight
from specdec.export.progress import Progress, SilentProgress
from specdec.export.report import ExportReport
from specdec.export.sources.accounting import Accounting
from specdec.export.sources.generation import within_vocabulary
from specdec.export.sources.tokenizers import write_tokenizer
from specdec.export.staging import staged
from specdec.export.tensorrt.package import build_engines, keep_graphs
from specdec.export.weights.bytes_read import weights_read
from specdec.runtime.report.measuring.golden import write_golden

__all__ = ["export_package"]

_LIBRARIES = ("optimum", "optimum-onnx", "transformers", "torch", "onnx")
_VERSIONED = (*_LIBRARIES, "onnxruntime", "onnxruntime-gpu")
"""Distributions whose versions a package records, as far as they are installed."""


def export_package(options: ExportOptions, progress: Progress | None = None) -> ExportReport:
    """Turn a target and a draft into a package directory.

    Args:
        options: what to export and where to.
        progress: receives the steps; silent by default.

    Returns:
        The measured report of the package.

    Raises:
        ExportError: the pair cannot be exported, or its engines failed their checks. Nothing is
            left at `options.out` or beside it, whatever ends the export.
    """
    progress = progress or SilentProgress()
    started = time.perf_counter()
    with progress.step("check the sources"):
        plan = preflight(options)
    with staged(options.out, overwrite=options.overwrite) as directory:
        tokenizer = write_tokenizer(plan.tokenizer, directory)
        built = build_pair(plan, directory, progress)
        write_golden(directory, built.golden)
        record, problems = source_record(_accounted(plan), built.compared)
        manifest = Manifest(
            target=built.target,
            draft=built.draft,
            tokenizer=tokenizer,
            files=inventory(directory),
            specdec_version=VERSION,
            source=_provenance(plan, built),
            generation=within_vocabulary(plan.tokenizer.generation, built.target.vocab_size),
            checks={"weights_read": _weights_read(directory, built), "source": record},
        )
        release_memory()
        # The manifest is written last: until then nothing here loads as a package.
        files = {name: directory / name for name in manifest.files}
        templates = (plan.tokenizer.chat_template, plan.tokenizer.chat_templates)
        package = Package(directory, manifest, files, *templates)
        references = (built.reference, built.draft_reference)
        report = check_and_measure(
            package, options, references, built.candidates, progress, problems
        )
        checks = {
            **manifest.checks,
            **report.figures,
            "problems": report.problems,
            "notes": list(built.notes),
        }
        manifest = Manifest(**{**vars(manifest), "checks": checks, "costs": report.costs})
        if options.builds_engines:
            manifest = build_engines(directory, manifest, options, progress)
        elif options.is_tensorrt:
            manifest = keep_graphs(manifest, options.backend)
        write_manifest(directory, manifest)
        read_package(directory, verify_checksums=False)
        size = sum(entry.size for entry in manifest.files.values())
    return ExportReport(options.out, manifest, size, time.perf_counter() - started)


def _accounted(plan: Plan) -> dict[str, Accounting]:
    draft = plan.target_weights if plan.self_draft else plan.draft_weights
    named = {"target": plan.target_weights, "draft": draft}
    return {name: weights for name, weights in named.items() if weights is not None}


def _weights_read(directory: Path, built: Pair) -> dict[str, int]:
    named = {"target": built.target, "draft": built.draft}
    return {n: weights_read(directory, e) for n, e in named.items() if e is not None}


def _provenance(plan: Plan, built: Pair) -> dict[str, Any]:
    """How the package was made, without paths of the machine that made it."""
    versions = {DISTRIBUTION: VERSION}
    for name in _VERSIONED:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    draft = plan.options.draft
    return {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "target": Path(plan.options.target).name,
        "draft": draft if draft in ("self", "none") else Path(draft).name,
        "target_architecture": plan.target_config.model_type,
        "target_precision": plan.options.target_precision,
        "draft_precision": plan.options.draft_precision if plan.draft is not None else None,
        "backend": plan.options.backend,
        "device": "cuda" if plan.options.is_for_gpu else "cpu",
        **({"calibration": dict(built.calibration)} if built.calibration else {}),
        "max_length": plan.max_length,
        "versions": versions,
    }
