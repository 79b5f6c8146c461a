"""Write one engine of a package from a traced graph: its recipe, its check, its native graph."""

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
from specdec.export.checks.weights import ComparedWeights, compare_weights
from specdec.export.engine_graphs import write_engine
from specdec.export.genai.model import AS_GIVEN
from specdec.export.memory import release_memory
from specdec.export.native.pair import add_native
from specdec.export.preflight import Plan
from specdec.export.progress import Progress
from specdec.export.weights.recipes import Recipe, find_recipe
from specdec.runtime.report.contents import Candidate

__all__ = ["Export", "Written", "draft_recipe", "write", "write_draft"]


@dataclass(frozen=True)
class Export:
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
class Written:
    """An engine in the package."""

    entry: EngineEntry
    notes: tuple[str, ...]
    candidates: tuple[Candidate, ...] = ()
    calibration: Mapping[str, Any] = field(default_factory=dict)
    compared: ComparedWeights | None = None
    """None for an engine that is not the source's weights up to rounding."""


def draft_recipe(plan: Plan) -> Recipe:
    """The recipe of the draft's entry; of "auto" one that stands in until the choice is made."""
    precision = plan.options.draft_precision
    return plan.options.recipe("int8" if precision == "auto" else precision)


def write(
    export: Export,
    plain: Path,
    entry: EngineEntry,
    recipe: Recipe,
    scales: Mapping[str, ActivationScale | None] | None = None,
) -> Written:
    """Write the engine of `entry` from the graph `plain`."""
    if entry.recipe == AS_GIVEN:  # the weights of the graph stay as they are
        recipe = find_recipe("fp32")
    graph = export.directory / entry.graph
    name = graph.parent.name
    graph.parent.mkdir()
    with export.progress.step(f"write {name} {entry.recipe}"):
        kept = write_engine(plain, graph, recipe, scales)
        compared = _compare(export.plan, graph)
        entry, note = add_native(export.directory, entry, recipe)
    release_memory()
    if note is not None:
        export.note(f"{name}: {note}")
    return Written(entry, _note_kept(export, kept, name), compared=compared)


def _compare(plan: Plan, graph: Path) -> ComparedWeights | None:
    """Hold an engine against its files, before its weights are packed for the native operators."""
    accounted, calibrated = plan.target_weights, False
    if graph.parent.name == "draft":
        # Calibrated weights carry divisors of their channels: no single one is the source's.
        calibrated = plan.calibration is not None
        accounted = plan.target_weights if plan.self_draft else plan.draft_weights
    return None if accounted is None or calibrated else compare_weights(graph, accounted)


def write_draft(export: Export, plain: Path, draft: EngineEntry, target: EngineEntry) -> Written:
    """Write the draft with its recipe, or with the one that measures fastest."""
    plan, recipe = export.plan, draft_recipe(export.plan)
    if draft.recipe == AS_GIVEN:
        return write(export, plain, draft, recipe)
    if plan.options.draft_precision == "auto":
        entry, candidates, kept = choose_draft(
            plain,
            draft,
            _surroundings(export, target),
            export.progress,
        )
        compared = _compare(plan, export.directory / entry.graph)
        return Written(entry, _note_kept(export, kept, "draft"), candidates, compared=compared)
    if plan.calibration is None:
        return write(export, plain, draft, recipe)
    scales, record = calibrate_draft(
        plain, plan.calibration, draft.vocab_size, export.progress, plan.options.num_threads
    )
    return replace(write(export, plain, draft, recipe, scales), calibration=record)


def _surroundings(export: Export, target: EngineEntry) -> Surroundings:
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


def _note_kept(export: Export, kept: list[str], name: str) -> tuple[str, ...]:
    """Tell of weights that stay float32, if any."""
    if not kept:
        return ()
    first = ", ".join(kept[:3]) + (", ..." if len(kept) > 3 else "")
    note = (
        f"{len(kept)} weights of the {name} stay fp32: their values exceed FP16's range ({first})"
    )
    return (export.note(note),)
