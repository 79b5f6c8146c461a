"""The export from end to end: two sources in, one checked package out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from specdec.engines.load import Package, read_package
from specdec.engines.package.manifest import EngineEntry, Manifest, inventory, write_manifest
from specdec.export.auto import Surroundings, choose_draft
from specdec.export.calibration.ranges import calibrate_draft
from specdec.export.calibration.scales import ActivationScale
from specdec.export.checks.device import check_device
from specdec.export.checks.measuring import check_and_measure
from specdec.export.checks.reference import Reference, score_golden, score_reference
from specdec.export.engine_graphs import (
    describe_engine,
    logits_width,
    trace_graph,
    write_engine,
)
from specdec.export.genai.model import GenaiModel
from specdec.export.graphs.layouts import fits_in_place
from specdec.export.memory import release_memory
from specdec.export.options import ExportOptions
from specdec.export.preflight import Plan, preflight
from specdec.export.progress import Progress, SilentProgress
from specdec.export.provenance import provenance
from specdec.export.report import ExportReport
from specdec.export.sources.generation import within_vocabulary
from specdec.export.sources.source import ModelSource, load_model
from specdec.export.sources.tokenizers import write_tokenizer
from specdec.export.staging import staged
from specdec.export.tensorrt.package import build_engines, keep_graphs
from specdec.export.weights.bytes_read import weights_read
from specdec.export.weights.recipes import Recipe
from specdec.runtime.report.contents import Candidate
from specdec.runtime.report.golden import GoldenText, write_golden

__all__ = ["export_package"]


@dataclass
class _Engines:
    """What has been built so far."""

    target: EngineEntry | None = None
    draft: EngineEntry | None = None
    reference: Reference | None = None
    draft_reference: Reference | None = None
    golden: tuple[GoldenText, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    calibration: dict[str, Any] = field(default_factory=dict)
    """How the ranges of the draft's activations were found, for the record."""
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
        tokenizer = write_tokenizer(plan.tokenizer, directory)
        built = _build(plan, directory, progress)
        write_golden(directory, built.golden)
        assert built.target is not None
        assert built.reference is not None
        manifest = Manifest(
            target=built.target,
            draft=built.draft,
            tokenizer=tokenizer,
            files=inventory(directory),
            specdec_version=version("specdec"),
            source=provenance(plan, built.calibration),
            generation=within_vocabulary(plan.tokenizer.generation, built.target.vocab_size),
            checks={"weights_read": _weights_read(directory, built)},
        )
        release_memory()
        # The manifest is written last: until then nothing here loads as a package.
        files = {name: directory / name for name in manifest.files}
        templates = (plan.tokenizer.chat_template, plan.tokenizer.chat_templates)
        package = Package(directory, manifest, files, *templates)
        references = (built.reference, built.draft_reference)
        report = check_and_measure(package, options, references, built.candidates, progress)
        checks = {
            **manifest.checks,
            **report.figures,
            "problems": report.problems,
            "notes": built.notes,
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


def _build(plan: Plan, directory: Path, progress: Progress) -> _Engines:
    """Write the engines of a plan into a package directory."""
    built = _Engines(notes=list(plan.notes))
    for note in plan.notes:
        progress.note(note)
    options = plan.options
    target_recipe = options.recipe(options.target_precision)
    # Of "auto", what stands in the entry until the choice is made.
    automatic = options.draft_precision == "auto"
    draft_recipe = options.recipe("int8" if automatic else options.draft_precision)
    with progress.step(f"read target {plan.target.name}"):
        model = load_model(plan.target)
    layout = _layout(model, plan.max_length, "target", built, progress)
    target_recipe = _own_recipe(model) or target_recipe
    vocab_size = min(plan.tokenizer.size, logits_width(model))
    if plan.draft is not None and not plan.self_draft:
        vocab_size = min(vocab_size, _draft_width(plan))
    built.reference = score_reference(model, plan.tokenizer, vocab_size, plan.max_length)
    built.golden = score_golden(model, plan.tokenizer, vocab_size, plan.max_length)
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
        _write_draft(plain, directory, draft_recipe, plan, built, progress)
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
    recipe = _own_recipe(model) or recipe
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
    _write_draft(plain, directory, recipe, plan, built, progress)
    _clear(scratch)


def _own_recipe(model: Any) -> Recipe | None:
    """The recipe of a model whose weights are taken as they are, else None."""
    return model.recipe if isinstance(model, GenaiModel) else None


def _layout(model: Any, max_length: int, name: str, built: _Engines, progress: Progress) -> str:
    if isinstance(model, GenaiModel):
        return "in_place"
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
    plain: Path,
    folder: Path,
    recipe: Recipe,
    name: str,
    built: _Engines,
    progress: Progress,
    scales: Mapping[str, ActivationScale | None] | None = None,
) -> None:
    folder.mkdir()
    with progress.step(f"write {name} {recipe.name}"):
        kept = write_engine(plain, folder / "model.onnx", recipe, scales)
    release_memory()
    _note_kept(kept, name, built, progress)


def _note_kept(kept: list[str], name: str, built: _Engines, progress: Progress) -> None:
    """Tell of weights that stay float32, if any."""
    if kept:
        note = f"{len(kept)} weights of the {name} stay fp32: their values exceed FP16's range"
        built.notes.append(note)
        progress.note(note)


def _write_draft(
    plain: Path, directory: Path, recipe: Recipe, plan: Plan, built: _Engines, progress: Progress
) -> None:
    """Write the draft with its recipe, or with the one that proves fastest."""
    assert built.draft is not None
    if plan.options.draft_precision != "auto":
        scales = None
        if plan.calibration is not None:
            scales, built.calibration = calibrate_draft(
                plain, plan.calibration, built.draft.vocab_size, progress, plan.options.num_threads
            )
        _write(plain, directory / "draft", recipe, "draft", built, progress, scales)
        return
    assert built.target is not None
    around = Surroundings(
        target_graph=directory / built.target.graph,
        target=built.target,
        tokenizer_file=directory / "tokenizer.json",
        chat_template=plan.tokenizer.chat_template,
        special_tokens=plan.tokenizer.special_tokens,
        eos_token_ids=plan.tokenizer.eos_token_ids,
        num_threads=plan.options.num_threads,
        device=check_device(plan.options),
    )
    built.draft, built.candidates, kept = choose_draft(
        plain, built.draft, directory / "draft", around, progress
    )
    _note_kept(kept, "draft", built, progress)


def _draft_width(plan: Plan) -> int:
    return int(plan.draft_config.get_text_config().vocab_size)  # type: ignore[union-attr]


def _weights_read(directory: Path, built: _Engines) -> dict[str, int]:
    named = {"target": built.target, "draft": built.draft}
    return {n: weights_read(directory / e.graph, e) for n, e in named.items() if e is not None}


def _clear(scratch: Path) -> None:
    for path in scratch.iterdir():
        path.unlink()
