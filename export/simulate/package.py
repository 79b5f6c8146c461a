"""Write packages of a given size with random weights, to time a pair before it is trained.

Speed depends on shapes, not on values. So the model is a Llama of the size asked for, its
weights one random block repeated, and everything after that is the real export: the same graph,
the same quantizers, the same in-place cache. Two layers and a small vocabulary are traced and
quantized; the further layers repeat the second one and share its place on disk (`repeat_layers`),
and the tables of tokens are tiled (`widen_vocabulary`). So a target of 7 B weights is built
in seconds and takes its full size and time once it is loaded. Its text is meaningless: such a
package serves `specdec-bench --simulate-acceptance` alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specdec.engines.package.manifest import (
    EngineEntry,
    Manifest,
    TokenizerEntry,
    inventory,
    write_manifest,
)
from specdec.engines.release import VERSION
from specdec.export.engine_graphs import describe_engine, trace_graph, write_engine
from specdec.export.errors import ExportError
from specdec.export.memory import release_memory
from specdec.export.native.pair import add_native
from specdec.export.progress import Progress
from specdec.export.simulate.repeat_layers import repeat_layers
from specdec.export.simulate.shapes import Shape, disk_needed, shape_of, traced_part
from specdec.export.simulate.widen_vocabulary import widen_vocabulary
from specdec.export.weights.bytes_read import weights_read
from specdec.export.weights.recipes import Recipe, find_recipe

__all__ = ["SimulatedPair", "write_simulated_package"]

_BLOCK = 1 << 22


@dataclass(frozen=True)
class SimulatedPair:
    """Sizes and precisions of a simulated pair."""

    target: str
    """Size such as "1.5B" or "500M"."""
    draft: str = "self"
    """A size, "self", or "none" for a target alone."""
    target_precision: str = "fp16"
    draft_precision: str = "int8"
    max_length: int = 2048
    device: str = "cpu"
    """What the engines are made for: "cpu" or "cuda"."""


def write_simulated_package(pair: SimulatedPair, directory: Path, progress: Progress) -> None:
    """Build the package.

    Args:
        pair: sizes and precisions.
        directory: an existing, empty directory.
        progress: receives the steps.

    Raises:
        ExportOptionError: a size, a precision or the device is not understood.
        ExportError: not enough disk.
    """
    target = shape_of(pair.target)
    draft = None if pair.draft in ("self", "none") else shape_of(pair.draft)
    precisions = {"target": pair.target_precision, "draft": pair.draft_precision}
    recipes = {name: find_recipe(asked, device=pair.device) for name, asked in precisions.items()}
    own: tuple[str, ...] = ("target", "draft") if pair.draft == "self" else ("target",)
    draft = draft and replace(draft, vocab=target.vocab)
    models = {own: target} | ({("draft",): draft} if draft else {})
    _check_disk(directory, models, recipes)
    scratch = directory / "scratch"
    scratch.mkdir()
    entries: dict[str, EngineEntry] = {}
    for names, shape in models.items():
        entries |= _build(shape, names, directory, scratch, recipes, pair.max_length, progress)
    scratch.rmdir()
    tokenizer = _write_tokenizer(directory, target.vocab)
    read = {name: weights_read(directory, entry) for name, entry in entries.items()}
    manifest = Manifest(
        target=entries["target"],
        draft=entries.get("draft"),
        tokenizer=tokenizer,
        files=inventory(directory),
        specdec_version=VERSION,
        source={
            "target": f"{pair.target}, random weights",
            "draft": pair.draft if draft is None else f"{pair.draft}, random weights",
        },
        checks={"weights_read": read},
    )
    write_manifest(directory, manifest)


def _build(
    shape: Shape,
    names: tuple[str, ...],
    directory: Path,
    scratch: Path,
    recipes: dict[str, Recipe],
    max_length: int,
    progress: Progress,
) -> dict[str, EngineEntry]:
    """Write one model as one or two engines."""
    traced = traced_part(shape)
    with progress.step(f"make a random model of {shape.weights / 1e6:.0f} M weights"):
        model = _random_model(traced, max_length)
    with progress.step("trace it"):
        plain = trace_graph(model, "in_place", max_length, scratch)
    entries = {}
    for name in names:
        recipe = recipes[name]
        entry = describe_engine(
            f"{name}/model.onnx",
            model,
            "in_place",
            recipe,
            vocab_size=traced.vocab,
            max_length=max_length,
            shares_target_cache=name == "draft" and "target" in names,
        )
        entries[name] = replace(
            entry, num_layers=shape.layers, vocab_size=shape.vocab, logits_width=shape.vocab
        )
    del model
    release_memory()
    for name in names:
        recipe = recipes[name]
        (directory / name).mkdir()
        with progress.step(f"write {name} {recipe.name}"):
            graph = directory / name / "model.onnx"
            write_engine(plain, graph, recipe)
            repeat_layers(graph, shape.layers)
            widen_vocabulary(graph, traced.vocab, shape.vocab)
            entries[name], _ = add_native(directory, entries[name], recipe)
    for path in scratch.iterdir():
        path.unlink()
    return entries


def _random_model(shape: Shape, max_length: int) -> Any:
    """A Llama whose matrices repeat one block of normal numbers, standard deviation 0.02."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_utils import no_init_weights

    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
    )
    config._attn_implementation = "eager"
    with no_init_weights():
        model = LlamaForCausalLM(config)
    model.tie_weights()
    block = torch.randn(_BLOCK, generator=torch.Generator().manual_seed(0)) * 0.02
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.fill_(1.0)
                continue
            flat = weight.view(-1)
            for start in range(0, flat.numel(), _BLOCK):
                part = flat[start : start + _BLOCK]
                part.copy_(block[: part.numel()])
    return model.eval()


def _write_tokenizer(directory: Path, vocab: int) -> TokenizerEntry:
    """A tokenizer whose tokens are bytes; the rest of the vocabulary is never produced."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*letters, *(f"<unused {i}>" for i in range(len(letters), vocab))]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    return TokenizerEntry(file="tokenizer.json", eos_token_ids=())


def _check_disk(
    directory: Path, models: Mapping[tuple[str, ...], Shape], recipes: Mapping[str, Recipe]
) -> None:
    needed = disk_needed(models, recipes)
    free = shutil.disk_usage(directory).free
    if free < needed:
        sizes = " and ".join(f"{shape.weights / 1e9:g} B" for shape in models.values())
        raise ExportError(
            f"models of {sizes} weights need about {needed / 1e9:.1f} GB of disk in {directory}, "
            f"but {free / 1e9:.1f} GB are free; free some or set TMPDIR"
        )
