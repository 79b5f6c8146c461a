"""The export from end to end: two sources in, one checked package out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specdec.engines.manifest import EngineEntry, Manifest, inventory, write_manifest
from specdec.engines.package import load_package
from specdec.export.checks import CheckReport, check_engines
from specdec.export.errors import ExportCheckError
from specdec.export.graphs import describe_engine, trace_graph, write_engine
from specdec.export.layouts import fits_in_place
from specdec.export.memory import release_memory
from specdec.export.options import ExportOptions
from specdec.export.preflight import Plan, preflight
from specdec.export.progress import Progress, SilentProgress
from specdec.export.quantize import Recipe, find_recipe
from specdec.export.reference import Reference, score_reference
from specdec.export.report import ExportReport
from specdec.export.sources import ModelSource, load_model
from specdec.export.staging import staged
from specdec.export.tensorrt_package import build_engines
from specdec.export.tokenizers import write_tokenizer

__all__ = ["export_package"]

_VERSIONED = ("specdec", "optimum", "optimum-onnx", "transformers", "torch", "onnx", "onnxruntime")


@dataclass
class _Engines:
    """What has been built so far."""

    target: EngineEntry | None = None
    draft: EngineEntry | None = None
    reference: Reference | None = None
    draft_reference: Reference | None = None
    notes: list[str] = field(default_factory=list)


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
    with staged(options.out) as directory:
        built = _build(plan, directory, progress)
        tokenizer = write_tokenizer(plan.tokenizer, directory)
        assert built.target is not None
        manifest = Manifest(
            target=built.target,
            draft=built.draft,
            tokenizer=tokenizer,
            files=inventory(directory),
            specdec_version=version("specdec"),
            source=_provenance(plan),
        )
        write_manifest(directory, manifest)
        release_memory()
        with progress.step("check the engines"):
            report = _check(directory, built, options.num_threads)
        if report.problems and not options.force:
            raise ExportCheckError(
                f"the engines failed their checks: {'; '.join(report.problems)}; "
                "nothing was written (--force writes the package all the same)"
            )
        checks = {**report.figures, "problems": report.problems, "notes": built.notes}
        manifest = Manifest(**{**vars(manifest), "checks": checks, "costs": report.costs})
        if options.is_tensorrt:
            manifest = build_engines(directory, manifest, options, progress)
        write_manifest(directory, manifest)
        size = sum(entry.size for entry in manifest.files.values())
    return ExportReport(options.out, manifest, size, time.perf_counter() - started)


def _build(plan: Plan, directory: Path, progress: Progress) -> _Engines:
    """Write the engines of a plan into a package directory."""
    built = _Engines(notes=list(plan.notes))
    for note in plan.notes:
        progress.note(note)
    options = plan.options
    target_recipe = find_recipe(options.target_precision, options.backend)
    draft_recipe = find_recipe(options.draft_precision, options.backend)
    with progress.step(f"read target {plan.target.name}"):
        model = load_model(plan.target)
    layout = _layout(model, plan.max_length, "target", built, progress)
    vocab_size = min(plan.tokenizer.size, model.get_output_embeddings().weight.shape[0])
    if plan.draft is not None and not plan.self_draft:
        vocab_size = min(vocab_size, _draft_width(plan))
    built.reference = score_reference(model, plan.tokenizer, vocab_size, plan.max_length)
    scratch = directory / "scratch"
    scratch.mkdir()
    with progress.step("trace target"):
        plain = trace_graph(model, layout, plan.max_length, scratch)
    described = {"vocab_size": vocab_size, "max_length": plan.max_length}
    built.target = describe_engine(
        "target/model.onnx", model, layout, target_recipe, shares_target_cache=False, **described
    )
    if plan.self_draft:
        built.draft = describe_engine(
            "draft/model.onnx",
            model,
            layout,
            draft_recipe,
            shares_target_cache=layout == "in_place",
            **described,
        )
    del model
    release_memory()
    _write(plain, directory / "target", target_recipe, "target", built, progress)
    if plan.self_draft:
        _write(plain, directory / "draft", draft_recipe, "draft", built, progress)
    _clear(scratch)
    if plan.draft is not None and not plan.self_draft:
        _build_draft(plan, plan.draft, draft_recipe, vocab_size, directory, built, progress)
    scratch.rmdir()
    return built


def _build_draft(
    plan: Plan,
    source: ModelSource,
    recipe: Recipe,
    vocab_size: int,
    directory: Path,
    built: _Engines,
    progress: Progress,
) -> None:
    """Export a draft that is a model of its own."""
    scratch = directory / "scratch"
    with progress.step(f"read draft {source.name}"):
        model = load_model(source)
    layout = _layout(model, plan.draft_max_length, "draft", built, progress)
    built.draft_reference = score_reference(
        model, plan.tokenizer, vocab_size, plan.draft_max_length
    )
    with progress.step("trace draft"):
        plain = trace_graph(model, layout, plan.draft_max_length, scratch)
    built.draft = describe_engine(
        "draft/model.onnx",
        model,
        layout,
        recipe,
        vocab_size=vocab_size,
        max_length=plan.draft_max_length,
        shares_target_cache=False,
    )
    del model
    release_memory()
    _write(plain, directory / "draft", recipe, "draft", built, progress)
    _clear(scratch)


def _layout(model: Any, max_length: int, name: str, built: _Engines, progress: Progress) -> str:
    reason = fits_in_place(model, max_length)
    if reason is None:
        return "in_place"
    note = (
        f"the {name} uses the slower concatenated cache: the in-place attention node cannot "
        f"express {model.config.model_type} ({reason})"
    )
    built.notes.append(note)
    progress.note(note)
    return "concatenated"


def _write(
    plain: Path, folder: Path, recipe: Recipe, name: str, built: _Engines, progress: Progress
) -> None:
    folder.mkdir()
    with progress.step(f"write {name} {recipe.name}"):
        kept = write_engine(plain, folder / "model.onnx", recipe)
    if kept:
        note = f"{len(kept)} weights of the {name} stay fp32: their values exceed FP16's range"
        built.notes.append(note)
        progress.note(note)


def _draft_width(plan: Plan) -> int:
    return int(plan.draft_config.get_text_config().vocab_size)  # type: ignore[union-attr]


def _check(directory: Path, built: _Engines, num_threads: int | None) -> CheckReport:
    assert built.reference is not None
    with load_package(directory, num_threads=num_threads, verify_checksums=False) as package:
        return check_engines(
            package.target,
            package.draft,
            package.draft_shares_cache,
            built.reference,
            built.draft_reference,
        )


def _clear(scratch: Path) -> None:
    for path in scratch.iterdir():
        path.unlink()


def _provenance(plan: Plan) -> dict[str, Any]:
    """How the package was made, without paths of the machine that made it."""
    versions = {}
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
        "max_length": plan.max_length,
        "versions": versions,
    }
