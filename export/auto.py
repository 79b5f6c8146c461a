"""Choose a draft's recipe by measurement: build each, time it, count what is accepted.

Neither size nor similarity decides: a smaller draft is faster and accepted less, and where the
best lies depends on the model and the machine. So every recipe is built from the same plain
graph and run, on the cache it will really use, over the same prompts; the winner has the largest
predicted speed-up over plain decoding, S(K) of its best K (`specdec.runtime.report.model`): the
most tokens per second, measured against the target at the same minute.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specdec.engines.devices import Device
from specdec.engines.engine import Engine
from specdec.engines.errors import SpecdecError
from specdec.engines.load import load_engine
from specdec.engines.package.manifest import EngineEntry
from specdec.export.engine_graphs import with_recipe, write_engine
from specdec.export.errors import ExportCheckError
from specdec.export.memory import release_memory
from specdec.export.native.pair import add_native, native_name
from specdec.export.progress import Progress
from specdec.export.weights.recipes import CUDA_RECIPES, RECIPES, Recipe
from specdec.runtime import SpeculativeDecoder
from specdec.runtime.report.contents import Candidate
from specdec.runtime.report.recipes import measure_candidate
from specdec.runtime.text.chat import ChatTemplate
from specdec.runtime.text.codec import TextCodec

__all__ = ["Surroundings", "choose_draft"]

CANDIDATES = tuple(recipe for recipe in RECIPES.values() if recipe.method != "none")


@dataclass(frozen=True)
class Surroundings:
    """The target, tokenizer and device that draft recipes are measured with."""

    directory: Path
    """Of the package."""
    target: EngineEntry
    tokenizer_file: Path
    chat_template: str | None
    special_tokens: dict[str, str]
    eos_token_ids: tuple[int, ...]
    num_threads: int | None
    device: Device
    """Where they run: what the engines are made for."""


def choose_draft(
    plain: Path,
    draft: EngineEntry,
    around: Surroundings,
    progress: Progress,
    recipes: Sequence[Recipe] = CANDIDATES,
) -> tuple[EngineEntry, tuple[Candidate, ...], list[str]]:
    """Build and measure every recipe and keep the best where `draft.graph` says.

    Args:
        plain: the draft's float32 graph, a result of `trace_graph`.
        draft: its entry, but for what depends on the recipe.
        around: target and tokenizer.
        progress: receives the steps.
        recipes: what to try, on a GPU each in the form it has there, if any.

    Returns:
        The entry of the winner; every recipe tried, the best first; and names of the weights that
        the winner keeps in float32.

    Raises:
        ExportCheckError: not one recipe could be built and run.
    """
    if around.device.kind == "cuda":
        recipes = [CUDA_RECIPES[r.name] for r in recipes if r.name in CUDA_RECIPES]
    entries = {recipe.name: _entry(draft, recipe) for recipe in recipes}
    folders = {name: around.directory / Path(e.graph).parent for name, e in entries.items()}
    failed: list[Candidate] = []
    kept: dict[str, list[str]] = {}
    for recipe in recipes:
        folders[recipe.name].mkdir()
        try:
            with progress.step(f"write draft {recipe.name}"):
                entry = entries[recipe.name]
                kept[recipe.name] = write_engine(plain, around.directory / entry.graph, recipe)
                entries[recipe.name], _ = add_native(around.directory, entry, recipe)
        except (ValueError, RuntimeError, SpecdecError) as error:
            failed.append(_failure(recipe, error))
            progress.note(f"{recipe.name} cannot be built: {failed[-1].problem}")
        release_memory()
    built = [recipe for recipe in recipes if recipe.name not in {f.recipe for f in failed}]
    measured = []
    target = _load(around.target, "target", around)
    try:
        for recipe in built:
            with progress.step(f"try draft {recipe.name}"):
                folder, entry = folders[recipe.name], entries[recipe.name]
                try:
                    measured.append(_try(target, folder, entry, recipe, around))
                except SpecdecError as error:
                    failed.append(_failure(recipe, error))
    finally:
        target.close()
    if not measured:
        reasons = "; ".join(f"{f.recipe}: {f.problem}" for f in failed)
        raise ExportCheckError(f"no draft recipe works for this model ({reasons})")
    measured.sort(key=lambda candidate: -candidate.speedup)
    winner = measured[0].recipe
    folders[winner].rename((around.directory / draft.graph).parent)
    entry = replace(entries[winner], graph=draft.graph)
    if entry.native is not None:
        entry = replace(entry, native=replace(entry.native, graph=native_name(draft.graph)))
    for name, folder in folders.items():
        if name != winner:
            shutil.rmtree(folder)
    progress.note(f"draft precision {winner} is predicted to be the fastest here")
    return entry, (*measured, *failed), kept[winner]


def _try(
    target: Engine, folder: Path, entry: EngineEntry, recipe: Recipe, around: Surroundings
) -> Candidate:
    shares = entry.shares_target_cache
    draft = _load(entry, "draft", around, target if shares else None)
    template = around.chat_template
    try:
        decoder = SpeculativeDecoder(
            target,
            draft,
            shares_cache=shares,
            codec=TextCodec(around.tokenizer_file),
            chat=None if template is None else ChatTemplate(template, around.special_tokens),
            eos_token_ids=around.eos_token_ids,
        )
        size = sum(path.stat().st_size for path in folder.iterdir())
        return measure_candidate(recipe.name, size, decoder, target, draft, shares)
    finally:
        target.truncate(0)
        draft.close()


def _load(
    entry: EngineEntry, name: str, around: Surroundings, share_cache_with: Engine | None = None
) -> Engine:
    native = entry.native
    return load_engine(
        around.directory / entry.graph,
        entry,
        name=name,
        device=around.device,
        native_graph=None if native is None else around.directory / native.graph,
        num_threads=around.num_threads,
        share_cache_with=share_cache_with,
    )


def _entry(draft: EngineEntry, recipe: Recipe) -> EngineEntry:
    """Of a candidate, in a folder of its own while it is tried."""
    return replace(with_recipe(draft, recipe), graph=f"draft-{recipe.name}/model.onnx")


def _failure(recipe: Recipe, error: Exception) -> Candidate:
    return Candidate(
        recipe=recipe.name,
        bytes=0,
        draft_seconds=0.0,
        acceptance_rate=0.0,
        num_draft_tokens=0,
        speedup=0.0,
        tokens_per_second=0.0,
        problem=" ".join(str(error).split())[:200] or type(error).__name__,
    )
