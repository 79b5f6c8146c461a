"""Packages of a given size with random weights, to time a pair that does not exist yet.

Speed depends on shapes, not on values. So the model is a Llama of the size asked for, its
weights one random block repeated and its layers copies of one, and everything after that is the
real export: the same graph, the same quantizers, the same in-place cache. The files hold one layer;
loaded, every layer has memory of its own. What such a package writes means nothing; it serves
`specdec-bench --simulate-acceptance` alone.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from specdec.engines.manifest import (
    EngineEntry,
    Manifest,
    TokenizerEntry,
    inventory,
    write_manifest,
)
from specdec.export.errors import ExportError, ExportOptionError
from specdec.export.graphs import describe_engine, trace_graph, write_engine
from specdec.export.memory import release_memory
from specdec.export.progress import Progress
from specdec.export.quantize import Recipe, find_recipe
from specdec.export.weights_read import weights_read

__all__ = ["SimulatedPair", "shape_of", "write_simulated_package"]

_BYTES_PER_WEIGHT = 11
_BLOCK = 1 << 22
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([MB])", re.IGNORECASE)
_UNITS = {"M": 1e6, "B": 1e9}


@dataclass(frozen=True)
class Shape:
    """A Llama's dimensions, as published models of about that size have them."""

    weights: float
    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    vocab: int

    @property
    def layer_weights(self) -> int:
        """Weights of one layer."""
        head = self.hidden // self.heads
        attention = 2 * self.hidden * (self.hidden + self.kv_heads * head)
        return attention + 3 * self.hidden * self.feed_forward

    @property
    def stored_weights(self) -> int:
        """Weights in a file: the embedding, which is the head, and one layer."""
        return self.vocab * self.hidden + self.layer_weights


_SHAPES = (
    Shape(1e6, 2, 128, 384, 4, 2, 4096),
    Shape(135e6, 30, 576, 1536, 9, 3, 49152),
    Shape(360e6, 32, 960, 2560, 15, 5, 49152),
    Shape(500e6, 24, 896, 4864, 14, 2, 151936),
    Shape(1.1e9, 22, 2048, 5632, 32, 4, 32000),
    Shape(1.5e9, 28, 1536, 8960, 12, 2, 151936),
    Shape(3e9, 36, 2048, 11008, 16, 2, 151936),
    Shape(8e9, 32, 4096, 14336, 32, 8, 128256),
)


@dataclass(frozen=True)
class SimulatedPair:
    """What to build."""

    target: str
    """Size such as "1.5B" or "500M"."""
    draft: str = "self"
    """A size, or "self"."""
    target_precision: str = "fp16"
    draft_precision: str = "int8"
    max_length: int = 2048
    device: str = "cpu"
    """What the engines are made for: "cpu" or "cuda"."""


def shape_of(size: str) -> Shape:
    """The published shape nearest to a size, with as many layers as bring it there.

    Raises:
        ExportOptionError: not a size, or outside 1M .. 20B.
    """
    match = _SIZE.fullmatch(size.strip())
    weights = float(match[1]) * _UNITS[match[2].upper()] if match else 0.0
    if not 1e6 <= weights <= 2e10:
        raise ExportOptionError(
            f"size {size!r} is not understood; allowed is 1M .. 20B, such as 500M or 1.5B"
        )
    nearest = min(_SHAPES, key=lambda shape: max(shape.weights / weights, weights / shape.weights))
    layers = max(1, round((weights - nearest.vocab * nearest.hidden) / nearest.layer_weights))
    return replace(nearest, layers=layers, weights=weights)


def write_simulated_package(pair: SimulatedPair, directory: Path, progress: Progress) -> None:
    """Build the package.

    Args:
        pair: sizes and precisions.
        directory: an existing, empty directory.
        progress: receives the steps.

    Raises:
        ExportOptionError: a size or precision is not understood, or the sizes do not pair.
        ExportError: not enough disk.
    """
    target = shape_of(pair.target)
    draft = target if pair.draft == "self" else shape_of(pair.draft)
    draft = replace(draft, vocab=target.vocab)
    precisions = {"target": pair.target_precision, "draft": pair.draft_precision}
    recipes = {n: find_recipe(p, device=pair.device) for n, p in precisions.items()}
    _check_disk(directory, target)
    scratch = directory / "scratch"
    scratch.mkdir()
    own = ("target", "draft") if pair.draft == "self" else ("target",)
    entries = _build(target, own, directory, scratch, recipes, pair.max_length, progress)
    if pair.draft != "self":
        entries |= _build(draft, ("draft",), directory, scratch, recipes, pair.max_length, progress)
    scratch.rmdir()
    tokenizer = _write_tokenizer(directory, target.vocab)
    read = {name: weights_read(directory / entry.graph, entry) for name, entry in entries.items()}
    manifest = Manifest(
        target=entries["target"],
        draft=entries["draft"],
        tokenizer=tokenizer,
        files=inventory(directory),
        specdec_version=version("specdec"),
        source={
            "target": f"{pair.target}, random weights",
            "draft": pair.draft if pair.draft == "self" else f"{pair.draft}, random weights",
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
    with progress.step(f"make a random model of {shape.weights / 1e6:.0f} M weights"):
        model = _random_model(shape, max_length)
    with progress.step("trace it"):
        plain = trace_graph(model, "in_place", max_length, scratch, repeated_layers=True)
    entries = {}
    for name in names:
        entries[name] = describe_engine(
            f"{name}/model.onnx",
            model,
            "in_place",
            recipes[name],
            vocab_size=shape.vocab,
            max_length=max_length,
            shares_target_cache=name == "draft" and "target" in names,
        )
    del model
    release_memory()
    for name in names:
        (directory / name).mkdir()
        with progress.step(f"write {name} {recipes[name].name}"):
            write_engine(plain, directory / name / "model.onnx", recipes[name])
    for path in scratch.iterdir():
        path.unlink()
    return entries


def _random_model(shape: Shape, max_length: int) -> Any:
    """A Llama whose matrices repeat one block of normal numbers, standard deviation 0.02.

    The parameters of all layers are views of the first one's.
    """
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
    first, *others = model.model.layers
    own = [model.get_input_embeddings().weight, model.model.norm.weight, *first.parameters()]
    for layer in others:
        for repeated, parameter in zip(layer.parameters(), first.parameters(), strict=True):
            repeated.data = parameter.data
    block = torch.randn(_BLOCK, generator=torch.Generator().manual_seed(0)) * 0.02
    with torch.no_grad():
        for weight in own:
            if weight.dim() == 1:
                weight.fill_(1.0)
                continue
            flat = weight.view(-1)
            for start in range(0, flat.numel(), _BLOCK):
                part = flat[start : start + _BLOCK]
                part.copy_(block[: part.numel()])
    return model.eval()


def _write_tokenizer(directory: Path, vocab: int) -> TokenizerEntry:
    """Bytes are tokens, and the rest of the vocabulary is there but never spelled."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*letters, *(f"<unused {i}>" for i in range(len(letters), vocab))]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    return TokenizerEntry(file="tokenizer.json", eos_token_ids=())


def _check_disk(directory: Path, shape: Shape) -> None:
    needed = _BYTES_PER_WEIGHT * shape.stored_weights
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise ExportError(
            f"a model of {shape.weights / 1e9:g} B weights needs about {needed / 1e9:.1f} GB of "
            f"disk in {directory}, but {free / 1e9:.1f} GB are free; free some or set TMPDIR"
        )
