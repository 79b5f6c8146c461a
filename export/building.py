"""Make the engines of a package: trace each model once, and write each engine from its graph.

    torch model -> `_Traced` (a float32 graph in a scratch folder) -> `Written` (an engine)

A torch model exists only while it is scored and traced. Every step returns what it made, complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specdec.engines.package.manifest import EngineEntry
from specdec.export.checks.reference import Reference, score_golden, score_reference
from specdec.export.checks.weights import ComparedWeights
from specdec.export.engine_graphs import (
    describe_engine,
    logits_width,
    trace_graph,
    with_recipe,
)
from specdec.export.genai.model import GenaiModel
from specdec.export.graphs.layouts import fits_in_place
from specdec.export.memory import release_memory
from specdec.export.preflight import Plan
from specdec.export.progress import Progress
from specdec.export.sources.accounting import Accounting
from specdec.export.sources.source import ModelSource, load_config
from specdec.export.sources.weights import load_model
from specdec.export.weights.recipes import Recipe
from specdec.export.writing import Export, draft_recipe, write, write_draft
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
    compared: Mapping[str, ComparedWeights]
    """How the engines "target" and "draft" agree with the files of their weights."""


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
    export = Export(plan, directory, scratch, progress)
    for note in plan.notes:
        progress.note(note)
    recipe = plan.options.recipe(plan.options.target_precision)
    traced, golden = _trace_target(export, recipe)
    release_memory()
    target = write(export, traced.graph, traced.entry, recipe)
    notes = (*plan.notes, *traced.notes, *target.notes)
    draft, draft_reference = None, None
    if plan.self_draft:
        draft = write_draft(export, traced.graph, _self_draft(export, traced.entry), target.entry)
    _clear(scratch)
    if plan.draft is not None and not plan.self_draft:
        other = _trace_draft(export, plan.draft, target.entry.vocab_size)
        release_memory()
        draft = write_draft(export, other.graph, other.entry, target.entry)
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
        compared={
            name: written.compared
            for name, written in (("target", target), ("draft", draft))
            if written is not None and written.compared is not None
        },
    )


def _load(source: ModelSource, weights: Accounting | None) -> Any:
    """The torch model of a source, or the engine of a GenAI folder."""
    if source.is_genai:
        return GenaiModel(load_config(source))
    return load_model(source, weights)


def _trace_target(export: Export, recipe: Recipe) -> tuple[_Traced, tuple[GoldenText, ...]]:
    """Read, score and trace the target."""
    plan = export.plan
    with export.progress.step(f"read target {plan.target.name}"):
        model = _load(plan.target, plan.target_weights)
    vocab_size = min(plan.tokenizer.size, logits_width(model))
    if plan.draft_config is not None and not plan.self_draft:
        vocab_size = min(vocab_size, int(plan.draft_config.get_text_config().vocab_size))
    golden = score_golden(model, plan.tokenizer, vocab_size, plan.max_length)
    loaded = _Loaded("target", model, vocab_size, plan.max_length)
    return _trace(export, loaded, recipe), golden


def _trace_draft(export: Export, source: ModelSource, vocab_size: int) -> _Traced:
    """Read, score and trace a draft that is a model of its own."""
    with export.progress.step(f"read draft {source.name}"):
        model = _load(source, export.plan.draft_weights)
    loaded = _Loaded("draft", model, vocab_size, export.plan.draft_max_length)
    return _trace(export, loaded, draft_recipe(export.plan))


def _trace(export: Export, loaded: _Loaded, recipe: Recipe) -> _Traced:
    """Score the reference text, and write the float32 graph of the model."""
    model, tokenizer = loaded.model, export.plan.tokenizer
    as_given = isinstance(model, GenaiModel)
    reason = None if as_given else fits_in_place(model, loaded.max_length)
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


def _self_draft(export: Export, target: EngineEntry) -> EngineEntry:
    """The entry of a draft that is the target's own weights, quantized."""
    return replace(
        with_recipe(target, draft_recipe(export.plan)),
        graph=_GRAPHS["draft"],
        shares_target_cache=target.layout == "in_place",
    )


def _clear(scratch: Path) -> None:
    for path in scratch.iterdir():
        path.unlink()
