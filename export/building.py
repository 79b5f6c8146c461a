"""Make the engines of a package: trace each model once, and write each engine from its graph.

    torch model -> `_Traced` (a float32 graph in a scratch folder) -> `_Written` (an engine)

A torch model exists only while it is scored and traced. Every step returns what it made, complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specdec.engines.package.manifest import EngineEntry
from specdec.export.auto import Surroundings, choose_draft
from specdec.export.calibration.ranges import calibrate_draft
from specdec.export.calibration.scales import ActivationScale
from specdec.export.checks.device import check_device
from specdec.export.checks.reference import Reference, score_golden, score_reference
from specdec.export.engine_graphs import describe_engine, trace_graph, with_recipe, write_engine
from specdec.export.graphs.layouts import fits_in_place
from specdec.export.memory import release_memory
from specdec.export.native.pair import add_native
from specdec.export.preflight import Plan
from specdec.export.progress import Progress
from specdec.export.sources.source import ModelSource
from specdec.export.sources.weights import load_model
from specdec.export.weights.recipes import Recipe
from specdec.runtime.report.contents import Candidate
from specdec.runtime.report.measuring.golden import GoldenText

__all__ = ["Pair", "build_pair"]

_GRAPHS = {"target": "target/model.onnx", "draft": "draft/model.onnx"}


@dataclass(frozen=True)
class Pair:
    """The engines of a package, written, and what is recorded of how they were made."""

    target: EngineEntry
    draft: EngineEntry | None
    """None without a draft."""
    reference: Reference
    """Logits of the target's original weights."""
    draft_reference: Reference | None
    """Of the draft's; None without a draft and for a self-draft."""
    golden: tuple[GoldenText, ...]
    """Texts scored by the target's original weights, for the package."""
    candidates: tuple[Candidate, ...]
    """Draft recipes that were tried, the best first; empty when the user chose one."""
    calibration: Mapping[str, Any]
    """How the ranges of the draft's activations were measured; empty without calibration."""
    notes: tuple[str, ...]
    """Lines for the user."""


@dataclass(frozen=True)
class _Export:
    """What all steps of one export use."""

    plan: Plan
    directory: Path
    """Of the package."""
    scratch: Path
    """An empty folder for the traced graph."""
    progress: Progress

    def note(self, message: str) -> str:
        """Tell the user `message`; returns it for the record."""
        self.progress.note(message)
        return message


@dataclass(frozen=True)
class _Loaded:
    """A torch model and the limits of its engine."""

    name: str
    """"target" or "draft"."""
    model: Any
    vocab_size: int
    """Real tokens of target and draft alike."""
    max_length: int
    """Capacity of the KV cache in tokens."""


@dataclass(frozen=True)
class _Traced:
    """A model as a float32 graph on disk."""

    graph: Path
    entry: EngineEntry
    """Of the engine that is written from the graph."""
    reference: Reference
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Written:
    """An engine in the package."""

    entry: EngineEntry
    notes: tuple[str, ...]
    candidates: tuple[Candidate, ...] = ()
    calibration: Mapping[str, Any] = field(default_factory=dict)


def build_pair(plan: Plan, directory: Path, progress: Progress) -> Pair:
    """Write the engines of a plan into a package directory.

    Args:
        plan: a checked export.
        directory: of the package; gets the folders "target" and, with a draft, "draft".
        progress: receives the steps.

    Raises:
        ExportError: a model cannot be read, traced or quantized.
    """
    scratch = directory / "scratch"
    scratch.mkdir()
    export = _Export(plan, directory, scratch, progress)
    for note in plan.notes:
        progress.note(note)
    recipe = plan.options.recipe(plan.options.target_precision)
    traced, golden = _trace_target(export, recipe)
    release_memory()
    target = _write(export, traced.graph, traced.entry, recipe)
    notes = (*plan.notes, *traced.notes, *target.notes)
    draft, draft_reference = None, None
    if plan.self_draft:
        draft = _write_draft(export, traced.graph, _self_draft(export, traced.entry), target.entry)
    _clear(scratch)
    if plan.draft is not None and not plan.self_draft:
        other = _trace_draft(export, plan.draft, target.entry.vocab_size)
        release_memory()
        draft = _write_draft(export, other.graph, other.entry, target.entry)
        draft_reference = other.reference
        notes += other.notes
        _clear(scratch)
    scratch.rmdir()
    return Pair(
        target=target.entry,
        draft=None if draft is None else draft.entry,
        reference=traced.reference,
        draft_reference=draft_reference,
        golden=golden,
        candidates=() if draft is None else draft.candidates,
        calibration={} if draft is None else draft.calibration,
        notes=notes if draft is None else notes + draft.notes,
    )


def _trace_target(export: _Export, recipe: Recipe) -> tuple[_Traced, tuple[GoldenText, ...]]:
    """Read, score and trace the target."""
    plan = export.plan
    with export.progress.step(f"read target {plan.target.name}"):
        model = load_model(plan.target, plan.target_weights)
    vocab_size = min(plan.tokenizer.size, model.get_output_embeddings().weight.shape[0])
    if plan.draft_config is not None and not plan.self_draft:
        vocab_size = min(vocab_size, int(plan.draft_config.get_text_config().vocab_size))
    golden = score_golden(model, plan.tokenizer, vocab_size, plan.max_length)
    loaded = _Loaded("target", model, vocab_size, plan.max_length)
    return _trace(export, loaded, recipe), golden


def _trace_draft(export: _Export, source: ModelSource, vocab_size: int) -> _Traced:
    """Read, score and trace a draft that is a model of its own."""
    with export.progress.step(f"read draft {source.name}"):
        model = load_model(source, export.plan.draft_weights)
    loaded = _Loaded("draft", model, vocab_size, export.plan.draft_max_length)
    return _trace(export, loaded, _draft_recipe(export.plan))


def _trace(export: _Export, loaded: _Loaded, recipe: Recipe) -> _Traced:
    """Score the reference text, and write the float32 graph of the model."""
    model, tokenizer = loaded.model, export.plan.tokenizer
    reason = fits_in_place(model, loaded.max_length)
    layout = "in_place" if reason is None else "concatenated"
    notes: tuple[str, ...] = ()
    if reason is not None:
        note = (
            f"the {loaded.name} uses the slower concatenated cache: the in-place attention node "
            f"cannot express {model.config.model_type} ({reason})"
        )
        notes = (export.note(note),)
    reference = score_reference(model, tokenizer, loaded.vocab_size, loaded.max_length)
    with export.progress.step(f"trace {loaded.name}"):
        graph = trace_graph(model, layout, loaded.max_length, export.scratch)
    entry = describe_engine(
        _GRAPHS[loaded.name],
        model,
        layout,
        recipe,
        vocab_size=loaded.vocab_size,
        max_length=loaded.max_length,
        shares_target_cache=False,
    )
    return _Traced(graph, entry, reference, notes)


def _draft_recipe(plan: Plan) -> Recipe:
    """The recipe of the draft's entry; of "auto" one that stands in until the choice is made."""
    precision = plan.options.draft_precision
    return plan.options.recipe("int8" if precision == "auto" else precision)


def _self_draft(export: _Export, target: EngineEntry) -> EngineEntry:
    """The entry of a draft that is the target's own weights, quantized."""
    return replace(
        with_recipe(target, _draft_recipe(export.plan)),
        graph=_GRAPHS["draft"],
        shares_target_cache=target.layout == "in_place",
    )


def _write(
    export: _Export,
    plain: Path,
    entry: EngineEntry,
    recipe: Recipe,
    scales: Mapping[str, ActivationScale | None] | None = None,
) -> _Written:
    """Write the engine of `entry` from the float32 graph `plain`."""
    graph = export.directory / entry.graph
    name = graph.parent.name
    graph.parent.mkdir()
    with export.progress.step(f"write {name} {recipe.name}"):
        kept = write_engine(plain, graph, recipe, scales)
        entry, note = add_native(export.directory, entry, recipe)
    release_memory()
    if note is not None:
        export.note(f"{name}: {note}")
    return _Written(entry, _note_kept(export, kept, name))


def _write_draft(export: _Export, plain: Path, draft: EngineEntry, target: EngineEntry) -> _Written:
    """Write the draft with its recipe, or with the one that measures fastest."""
    plan, recipe = export.plan, _draft_recipe(export.plan)
    if plan.options.draft_precision == "auto":
        entry, candidates, kept = choose_draft(
            plain,
            draft,
            _surroundings(export, target),
            export.progress,
        )
        return _Written(entry, _note_kept(export, kept, "draft"), candidates)
    if plan.calibration is None:
        return _write(export, plain, draft, recipe)
    scales, record = calibrate_draft(
        plain, plan.calibration, draft.vocab_size, export.progress, plan.options.num_threads
    )
    return replace(_write(export, plain, draft, recipe, scales), calibration=record)


def _surroundings(export: _Export, target: EngineEntry) -> Surroundings:
    """The target and the tokenizer that draft recipes are measured with."""
    plan = export.plan
    return Surroundings(
        directory=export.directory,
        target=target,
        tokenizer_file=export.directory / "tokenizer.json",
        chat_template=plan.tokenizer.chat_template,
        special_tokens=plan.tokenizer.special_tokens,
        eos_token_ids=plan.tokenizer.eos_token_ids,
        num_threads=plan.options.num_threads,
        device=check_device(plan.options),
    )


def _note_kept(export: _Export, kept: list[str], name: str) -> tuple[str, ...]:
    """Tell of weights that stay float32, if any."""
    if not kept:
        return ()
    first = ", ".join(kept[:3]) + (", ..." if len(kept) > 3 else "")
    note = (
        f"{len(kept)} weights of the {name} stay fp32: their values exceed FP16's range ({first})"
    )
    return (export.note(note),)


def _clear(scratch: Path) -> None:
    for path in scratch.iterdir():
        path.unlink()
