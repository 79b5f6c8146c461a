"""Dimensions of simulated models, and the sizes of their files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from specdec.export.errors import ExportOptionError
from specdec.export.weights.recipes import Recipe

__all__ = ["Shape", "disk_needed", "shape_of", "traced_part"]

_TRACED_LAYERS = 2
_TRACED_VOCAB = 4093  # a prime, so that no other dimension is like it
_FLOAT_BYTES = 4
_SCALES = 1.25
"""Of quantized weights: with the scales and zero points of their blocks, at most."""
_BESIDE = 20e6
"""Bytes of graphs, tokenizer, tables of rotary angles and gaps between weights."""
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


_SHAPES = (
    Shape(1e6, 2, 128, 384, 4, 2, 4096),
    Shape(135e6, 30, 576, 1536, 9, 3, 49152),
    Shape(360e6, 32, 960, 2560, 15, 5, 49152),
    Shape(500e6, 24, 896, 4864, 14, 2, 151936),
    Shape(1.1e9, 22, 2048, 5632, 32, 4, 32000),
    Shape(1.5e9, 28, 1536, 8960, 12, 2, 151936),
    Shape(3e9, 36, 2048, 11008, 16, 2, 151936),
    Shape(7e9, 28, 3584, 18944, 28, 4, 151936),
    Shape(8e9, 32, 4096, 14336, 32, 8, 128256),
)


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
    layers = max(1, round((weights - nearest.vocab * nearest.hidden) / _layer_weights(nearest)))
    return replace(nearest, layers=layers, weights=weights)


def _layer_weights(shape: Shape) -> int:
    head = shape.hidden // shape.heads
    attention = 2 * shape.hidden * (shape.hidden + shape.kv_heads * head)
    return attention + 3 * shape.hidden * shape.feed_forward


def traced_part(shape: Shape) -> Shape:
    """The part of a model that is made and traced; the rest repeats it."""
    layers = min(shape.layers, _TRACED_LAYERS)
    vocab = min(shape.vocab, _TRACED_VOCAB)
    weights = layers * _layer_weights(shape) + vocab * shape.hidden
    return replace(shape, layers=layers, vocab=vocab, weights=weights)


def disk_needed(models: Mapping[tuple[str, ...], Shape], recipes: Mapping[str, Recipe]) -> float:
    """Bytes that writing models takes at its peak.

    Args:
        models: by the names of the engines that each is written as.
        recipes: by name of the engine.
    """
    engines = sum(
        _engine_bytes(shape, recipes[name]) for names, shape in models.items() for name in names
    )
    # The float graph of one model at a time; its head is the embedding, transposed.
    parts = [traced_part(shape) for shape in models.values()]
    plain = _FLOAT_BYTES * max(part.weights + part.vocab * part.hidden for part in parts)
    return engines + plain + _BESIDE


def _engine_bytes(shape: Shape, recipe: Recipe) -> float:
    """What is stored of an engine: the traced layers, and the tables narrow and wide."""
    traced = traced_part(shape)
    table = (traced.vocab + (shape.vocab if shape.vocab > traced.vocab else 0)) * shape.hidden
    layers = traced.weights - traced.vocab * traced.hidden
    if recipe.storage == "fp16":
        return 2 * (layers + table)
    if recipe.method == "none":
        return _FLOAT_BYTES * (layers + 2 * table)
    # Rows of the embedding are 8 bits, whatever the head and the other matrices have.
    body = recipe.head_bits if recipe.mixed else recipe.bits
    return table + _SCALES / 8 * (body * layers + recipe.head_bits * table)
