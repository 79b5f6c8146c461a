"""Write GGUF files from torch models with the `gguf` package, as llama.cpp's converter does.

Rows of queries and keys are permuted for llama's rotation, Gemma's norms are stored plus 1, experts
are stacked, and rows are packed as Q4_K where their length allows, else as Q8_0, else as F16.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray

from tests.export.sources.q4_k import pack_q4_k

__all__ = ["ARCHITECTURES", "pack", "rounded", "tokenizer_keys", "write_gguf"]

ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "granite": "granite",
    "smollm3": "smollm3",
    "stablelm": "stablelm",
    "nemotron": "nemotron",
    "gpt2": "gpt2",
}
"""transformers' model type to llama.cpp's architecture."""
_KEYS = {
    "context_length": ("max_position_embeddings", "n_positions"),
    "embedding_length": ("hidden_size", "n_embd"),
    "block_count": ("num_hidden_layers", "n_layer"),
    "feed_forward_length": ("intermediate_size", "n_inner"),
    "attention.head_count": ("num_attention_heads", "n_head"),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon", "norm_eps"),
    "attention.key_length": ("head_dim",),
    "attention.value_length": ("head_dim",),
    "attention.sliding_window": ("sliding_window",),
    "rope.freq_base": ("rope_theta",),
    "rope.freq_base_swa": ("rope_local_base_freq",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "attention.scale": ("attention_multiplier",),
    "embedding_scale": ("embedding_multiplier",),
    "residual_scale": ("residual_multiplier",),
    "logit_scale": ("logits_scaling",),
    "expert_count": ("num_experts",),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "use_parallel_residual": ("use_parallel_residual",),
}
_KINDS = gguf.GGMLQuantizationType


def pack(array: NDArray[np.float32], kind: str) -> tuple[NDArray[Any], str]:
    """Rows packed as `kind`, or as the next wider type that takes rows of that length."""
    if array.ndim < 2 or kind == "F32":
        return array, "F32"
    if kind == "Q4_K" and array.shape[-1] % 256 == 0:
        return pack_q4_k(array), kind
    if kind in ("Q4_K", "Q8_0") and array.shape[-1] % 32 == 0:
        return gguf.quantize(array, _KINDS.Q8_0), "Q8_0"
    if kind in ("F32", "F16", "Q4_K", "Q8_0"):
        return array.astype(np.float16), "F16"
    return gguf.quantize(array, _KINDS[kind]), kind


def rounded(model: Any, kind: str) -> Any:
    """The torch model with its matrices as `pack` leaves them, in place."""
    with torch.no_grad():
        for parameter in model.parameters():
            data, packed = pack(np.ascontiguousarray(parameter.numpy()), kind)
            if packed != "F32":
                values = gguf.dequantize(data, _KINDS[packed])
                parameter.copy_(torch.from_numpy(values).reshape(parameter.shape))
    return model


def write_gguf(
    path: Path,
    model: Any,
    tokenizer: dict[str, Any],
    kind: str = "F32",
    *,
    extra: dict[str, Any] | None = None,
    tables: dict[str, NDArray[np.float32]] | None = None,
    dropped: tuple[str, ...] = (),
    **split: Any,
) -> Path:
    """Write a torch model to `path`.

    Args:
        path: the file; of a split one, its name before the part numbers.
        model: a transformers causal language model, float32.
        tokenizer: of `tokenizer_keys`.
        kind: type of the matrices.
        extra: further keys, or others in place of the usual ones; None leaves a key out.
        tables: further tensors, float32.
        dropped: names of tensors to leave out.
        split: `split_max_tensors` of `gguf.GGUFWriter`.
    """
    config = model.config
    arch = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, arch, **split)
    keys = {f"{arch}.{key}": value for key, value in _metadata(config).items()}
    for key, value in (keys | tokenizer | (extra or {})).items():
        if value is not None:
            _add(writer, key, value)
    for name, array in {**_tensors(model, arch), **(tables or {})}.items():
        if name not in dropped:
            data, packed = pack(
                np.ascontiguousarray(array), "F32" if tables and name in tables else kind
            )
            writer.add_tensor(name, data, raw_dtype=_KINDS[packed])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _metadata(config: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, attributes in _KEYS.items():
        value = next((v for a in attributes if (v := getattr(config, a, None)) is not None), None)
        if value is not None:
            found[key] = value
    if config.model_type == "gpt2":
        return {
            k: found[k]
            for k in (
                "context_length",
                "embedding_length",
                "block_count",
                "attention.head_count",
                "attention.layer_norm_epsilon",
            )
        }
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    found["rope.dimension_count"] = int(size * getattr(config, "partial_rotary_factor", 1.0))
    if config.model_type == "qwen2":
        found.pop("attention.sliding_window", None)
    return found


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    kinds = gguf.GGUFValueType
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        kind = kinds.UINT32 if isinstance(value, int) else kinds.FLOAT32
        writer.add_key_value(key, value, kind)


def _tensors(model: Any, arch: str) -> dict[str, NDArray[np.float32]]:
    config = model.config
    known = gguf.get_tensor_name_map(
        next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch),
        config.num_hidden_layers,
    )
    found: dict[str, NDArray[np.float32]] = {}
    experts: dict[str, list[NDArray[np.float32]]] = {}
    for name, parameter in model.named_parameters():
        array = parameter.detach().numpy()
        merged = re.sub(r"experts\.\d+\.", "experts.", name)
        tensor = known.get_name(merged, try_suffixes=(".weight", ".bias"))
        assert tensor is not None, name
        if merged != name:
            experts.setdefault(tensor, []).append(array)
            continue
        if arch in ("llama", "granite", "smollm3") and (m := re.search(r"attn_([qk])\.", tensor)):
            heads = config.num_attention_heads if m[1] == "q" else config.num_key_value_heads
            halves = array.reshape(heads, 2, -1, *array.shape[1:])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        if arch.startswith(("gemma", "nemotron")) and tensor.endswith("norm.weight"):
            array = array + 1
        if arch == "gpt2" and re.search(r"(attn_qkv|attn_output|ffn_up|ffn_down)\.w", tensor):
            array = array.T
        found[tensor] = array
    return found | {tensor: np.stack(parts) for tensor, parts in experts.items()}


def tokenizer_keys(folder: Path, pre: str = "gpt-2") -> dict[str, Any]:
    """The keys of a folder's byte-level tokenizer, as llama.cpp's converter writes them."""
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = {index: token for token, index in data["model"]["vocab"].items()}
    kinds = dict.fromkeys(vocabulary, gguf.TokenType.NORMAL)
    for added in data["added_tokens"]:
        vocabulary[added["id"]] = added["content"]
        special = gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED
        kinds[added["id"]] = special[0] if added["special"] else special[1]
    ids = sorted(vocabulary)
    assert ids == list(range(len(ids)))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [vocabulary[i] for i in ids],
        "tokenizer.ggml.token_type": [int(kinds[i]) for i in ids],
        "tokenizer.ggml.merges": [
            m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]
        ],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    }
