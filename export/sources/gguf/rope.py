"""The rotary embedding of a GGUF model: its scaling, factors and the rotated part of a head.

llama.cpp turns channel pair i by position * base^(-2 i / d) / (f_i * s): f are the factors of
`rope_freqs.weight` (Llama 3.1 and later), s is `rope.scaling.factor` when the type is "linear".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.export.errors import SourceError
from specdec.export.sources.gguf.architectures import Architecture
from specdec.export.sources.gguf.parts import GgufModel

__all__ = ["FACTORS", "LONG", "SHORT", "divide_frequencies", "rope_attributes"]

FACTORS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
"""Tensors that are no parameters of the model."""
_SCALING = "rope.scaling."


class _Keys:
    """The rotary keys of one model, each read once."""

    def __init__(self, model: GgufModel, architecture: str) -> None:
        self._model, self._prefix = model, f"{architecture}."
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(self._prefix + key)
        return self._model.metadata.get(self._prefix + key, default)


def rope_attributes(
    model: GgufModel, name: str, architecture: Architecture, head_size: int
) -> tuple[dict[str, Any], set[str]]:
    """Attributes of the configuration that the rotary keys and tensors give, and those keys.

    Args:
        model: the GGUF model.
        name: its `general.architecture`.
        architecture: of that name.
        head_size: channels of an attention head.

    Raises:
        SourceError: a key asks for what transformers' model cannot do.
    """
    keys = _Keys(model, name)
    found: dict[str, Any] = {}
    rotated = int(keys.get("rope.dimension_count", head_size))
    if rotated != head_size:
        if not architecture.partial_rotary:
            raise SourceError(
                f"{model.path}: {name}.rope.dimension_count is {rotated}; {architecture.model_type}"
                f" in transformers rotates all {head_size} channels of a head"
            )
        found["partial_rotary_factor"] = rotated / head_size
    elif architecture.partial_rotary:
        found["partial_rotary_factor"] = 1.0
    factors = model.tensors.get(FACTORS)
    if factors is not None and factors.shape != (rotated // 2,):
        raise SourceError(
            f"{model.path}: {FACTORS} has {math.prod(factors.shape)} values, and {rotated} "
            f"channels of a head rotate in pairs; allowed are {rotated // 2}"
        )
    context = int(keys.get("context_length", 0))
    original = keys.get(_SCALING + "original_context_length")
    kind = str(keys.get(_SCALING + "type", "none"))
    factor = float(keys.get(_SCALING + "factor", 0.0) or 0.0)
    old = float(keys.get("rope.scale_linear", 0.0) or 0.0)
    attention = float(keys.get(_SCALING + "attn_factor", 0.0) or 0.0)
    keys.get(_SCALING + "finetuned")  # tells how the model was made, not what it computes
    if LONG in model.tensors or SHORT in model.tensors or kind == "longrope":
        found |= _longrope(model, name, context, original, attention)
    elif kind == "yarn":
        found["rope_scaling"] = _yarn(keys, factor, original or context, attention)
    elif kind == "linear" or (kind == "none" and old not in (0.0, 1.0)):
        scale = factor or old
        if scale not in (0.0, 1.0):
            found["rope_scaling"] = {"rope_type": "linear", "factor": scale}
    elif kind != "none":
        raise SourceError(
            f"{model.path}: {name}.rope.scaling.type is {kind!r}; allowed are none, linear, yarn "
            "and longrope"
        )
    return found, keys.read


def _yarn(keys: _Keys, factor: float, original: int, attention: float) -> dict[str, Any]:
    scaling: dict[str, Any] = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": int(original),
    }
    fast, slow = (keys.get(f"{_SCALING}yarn_beta_{name}") for name in ("fast", "slow"))
    scaling |= {"beta_fast": float(fast)} if fast else {}
    scaling |= {"beta_slow": float(slow)} if slow else {}
    if attention not in (0.0, 1.0):  # llama.cpp multiplies what transformers replaces
        scaling["attention_factor"] = attention * (0.1 * math.log(factor) + 1.0)
    return scaling


def _longrope(
    model: GgufModel, name: str, context: int, original: Any, attention: float
) -> dict[str, Any]:
    lacking = [tensor for tensor in (LONG, SHORT) if tensor not in model.tensors]
    if lacking or original is None:
        what = lacking[0] if lacking else f"{name}.rope.scaling.original_context_length"
        raise SourceError(
            f"{model.path} asks for longrope scaling and lacks {what}; convert the model again"
        )
    scaling: dict[str, Any] = {"type": "longrope"}
    for attribute, tensor in (("short_factor", SHORT), ("long_factor", LONG)):
        scaling[attribute] = [float(str(f)) for f in rope_factors(model, tensor)]
    ratio = context / int(original)
    usual = math.sqrt(1 + math.log(ratio) / math.log(int(original))) if ratio > 1 else 1.0
    if attention and abs(attention - usual) > 1e-4:
        scaling["attention_factor"] = attention
    return {"rope_scaling": scaling, "original_max_position_embeddings": int(original)}


def rope_factors(model: GgufModel, tensor: str) -> NDArray[np.float32]:
    """The factors by channel pair of one of the tensors above; float32 [pairs].

    Raises:
        SourceError: the tensor is not float32.
    """
    info = model.tensors[tensor]
    if info.kind != "F32":
        raise SourceError(f"{info.file}: {tensor} is {info.kind}; allowed is F32")
    return np.fromfile(info.file, "<f4", math.prod(info.shape), offset=info.offset)


def divide_frequencies(model: Any, gguf: GgufModel) -> None:
    """Divide the frequencies of a torch model by `rope_freqs.weight`, in place.

    Raises:
        SourceError: the model has several such tables, or one that it computes otherwise.
    """
    import torch

    if FACTORS not in gguf.tensors:
        return
    factors = torch.from_numpy(rope_factors(gguf, FACTORS))
    tables = [m for m in model.modules() if type(m).__name__.endswith("RotaryEmbedding")]
    if len(tables) != 1 or tables[0].inv_freq.shape != factors.shape:
        raise SourceError(
            f"{gguf.path}: {FACTORS} has {len(factors)} values for {len(tables)} tables of "
            f"frequencies of {model.config.model_type}; allowed is one table of that length"
        )
    for name in ("inv_freq", "original_inv_freq"):
        if hasattr(tables[0], name):
            setattr(tables[0], name, getattr(tables[0], name) / factors)
