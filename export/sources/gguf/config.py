"""Turn the metadata of a GGUF model into a transformers configuration, key by key.

Every key is honoured, known to say nothing about what the model computes, or refused by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specdec.export.errors import SourceError, UnsupportedModelError
from specdec.export.sources.gguf.architectures import ARCHITECTURES, Architecture
from specdec.export.sources.gguf.parts import GgufModel
from specdec.export.sources.gguf.rope import rope_attributes

__all__ = ["architecture_of", "gguf_config"]

_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"
_ONLY = {
    "attention.causal": (True,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_shared_count": (0,),
    "expert_gating_func": (1,),
    "expert_weights_scale": (1.0, 0.0),
    "pooling_type": (0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "use_parallel_residual": (False,),
    "nextn_predict_layers": (0,),
    "rope.scaling.yarn_ext_factor": (1.0, -1.0),
    "rope.scaling.yarn_attn_factor": (1.0,),
}
"""Keys that are honoured by refusing every other value, where the architecture has no name for
them."""
_SAYS_NOTHING = {"vocab_size", "tensor_data_layout"}
"""Keys of an architecture that its tensors say already."""
_LARGE_GEMMA = {"gemma2": 46, "gemma3": 62}
"""Layers of the 27B models, which divide queries by the root of width over heads."""


def architecture_of(model: GgufModel) -> tuple[str, Architecture]:
    """The model's architecture and its name in the file.

    Raises:
        SourceError: the file names none, or holds something else than a language model.
        UnsupportedModelError: it is not one of `ARCHITECTURES`.
    """
    kind = model.metadata.get("general.type", "model")
    if kind != "model":
        raise SourceError(f"{model.path}: general.type is {kind!r}; allowed is 'model'")
    name = model.metadata.get("general.architecture")
    if not isinstance(name, str):
        raise SourceError(f"{model.path} names no general.architecture; it is no model")
    if name not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{model.path} has architecture {name!r}; as GGUF files, allowed are "
            f"{', '.join(sorted(ARCHITECTURES))}: pass the Hugging Face folder of others"
        )
    return name, ARCHITECTURES[name]


def gguf_config(model: GgufModel) -> Any:
    """The transformers configuration of a GGUF model.

    Raises:
        SourceError: a key is missing, unknown, or has a value that cannot be honoured.
        UnsupportedModelError: as `architecture_of`.
    """
    from transformers import AutoConfig

    name, architecture = architecture_of(model)
    found = dict(architecture.implied) | _plain(model, name, architecture)
    if _EMBEDDING not in model.tensors:
        raise SourceError(f"{model.path} lacks the tensor {_EMBEDDING}; convert the model again")
    found["vocab_size"] = model.tensors[_EMBEDDING].shape[0]
    found["tie_word_embeddings"] = _HEAD not in model.tensors
    for tensor, attribute in architecture.biases.items():
        found[attribute] = f"blk.0.{tensor}" in model.tensors
    read = {f"{name}.{key}" for key in architecture.keys}
    if architecture.model_type != "gpt2":
        head = _head_size(model, name, found)
        found["head_dim"] = head
        rope, keys = rope_attributes(model, name, architecture, head)
        found |= rope
        read |= keys | {f"{name}.attention.key_length", f"{name}.attention.value_length"}
    read |= _special(model, name, found)
    _check_keys(model, name, read)
    for attribute in ("bos_token_id", "eos_token_id"):
        found[attribute] = model.metadata.get(f"tokenizer.ggml.{attribute}")
    late = found.get("rope_scaling", {}).pop("attention_factor", None)
    config = AutoConfig.for_model(_model_type(architecture, found), pad_token_id=None, **found)
    if late is not None:  # Phi-3's configuration refuses it at first, and its model heeds it
        config.rope_scaling["attention_factor"] = late
    return config


def _plain(model: GgufModel, name: str, architecture: Architecture) -> dict[str, Any]:
    """Attributes whose value the file gives as it is."""
    found = {}
    for key, attribute in architecture.keys.items():
        value = model.metadata.get(f"{name}.{key}")
        if isinstance(value, np.ndarray):
            if len(set(value.tolist())) != 1:
                raise SourceError(
                    f"{model.path}: {name}.{key} differs from layer to layer; allowed is one value"
                )
            value = value.tolist()[0]
        if value is not None:
            found[attribute] = value
    for key in ("block_count", "embedding_length", "attention.head_count", "context_length"):
        if architecture.keys[key] not in found:
            raise SourceError(f"{model.path} lacks the key {name}.{key}; convert the model again")
    return found


def _head_size(model: GgufModel, name: str, found: dict[str, Any]) -> int:
    heads = int(found["num_attention_heads"])
    found.setdefault("num_key_value_heads", heads)
    size = int(model.metadata.get(f"{name}.attention.key_length", found["hidden_size"] // heads))
    values = int(model.metadata.get(f"{name}.attention.value_length", size))
    if values != size:
        raise SourceError(
            f"{model.path}: {name}.attention.value_length is {values} and key_length {size}; "
            "allowed are equal ones"
        )
    return size


def _special(model: GgufModel, name: str, found: dict[str, Any]) -> set[str]:
    """Attributes of single architectures that follow from others; the keys it read."""
    if not found.get("sliding_window"):
        found.pop("sliding_window", None)
    if name in _LARGE_GEMMA:
        large = found["num_hidden_layers"] == _LARGE_GEMMA[name]
        width = found["hidden_size"] // found["num_attention_heads"]
        found["query_pre_attn_scalar"] = width if large else found["head_dim"]
    if name == "phi3":
        found.setdefault("original_max_position_embeddings", found["max_position_embeddings"])
        found.pop("head_dim")
    if name == "qwen3moe":
        found.setdefault("intermediate_size", found.get("moe_intermediate_size"))
    key = f"{name}.attention.sliding_window_pattern"
    if name == "gemma3" and key in model.metadata:
        found["layer_types"] = _layer_types(model.metadata[key], found["num_hidden_layers"])
        return {key}
    return set()


def _layer_types(pattern: Any, layers: int) -> list[str]:
    """From one truth a layer (does it slide?), or every how many layers one does not."""
    if isinstance(pattern, np.ndarray):
        slides = [bool(p) for p in pattern]
    else:
        slides = [bool((i + 1) % int(pattern)) for i in range(layers)]
    return ["sliding_attention" if s else "full_attention" for s in slides]


def _model_type(architecture: Architecture, found: dict[str, Any]) -> str:
    """Llama with a window is Mistral; llama.cpp has one architecture for both."""
    if architecture.model_type == "llama" and "sliding_window" in found:
        return "mistral"
    return architecture.model_type


def _check_keys(model: GgufModel, name: str, read: set[str]) -> None:
    """Refuse keys of the architecture that nothing reads; see `tokenizer.py` for its own."""
    for key, value in model.metadata.items():
        if not key.startswith(f"{name}.") or key in read:
            continue
        short = key.removeprefix(f"{name}.")
        if short in _SAYS_NOTHING or (short in _ONLY and value in _ONLY[short]):
            continue
        only = f"; allowed is {_ONLY[short][0]}" if short in _ONLY else ", which is not known here"
        raise SourceError(
            f"{model.path}: {key} is {_shown(value)}{only}; pass the Hugging Face folder"
        )


def _shown(value: Any) -> str:
    text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) < 60 else f"{text[:60]}..."
