"""Tiny random models of every architecture the export takes, saved as Hugging Face folders.

Each is small enough to export in seconds and random enough that its greedy text wanders: weights
are normal with a deviation of 0.15, and vectors (biases, norms, attention sinks) get some noise
on top of their initial value, so that none of them is a no-op.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedTokenizerFast

from tests.support.small_tokenizers import byte_level

__all__ = ["CONTEXT", "MODELS", "VOCABULARY", "make_model", "write_model", "write_tokenizer"]

CONTEXT = 256
"""Context of every tiny model, in tokens."""
_LOGITS = 340
"""Logits a row: wider than the tokenizer, as in real models that pad their head."""
VOCABULARY = 332
"""Tokens of the tokenizer."""

_COMMON: dict[str, Any] = {
    "vocab_size": _LOGITS,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
_BASE = _COMMON | {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
}
_LLAMA = _BASE | {"intermediate_size": 96, "num_key_value_heads": 2}
_HEADS_OF_16 = _LLAMA | {"head_dim": 16}
_GPT2 = _COMMON | {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}
_FALCON = {k: v for k, v in _BASE.items() if k != "max_position_embeddings"}
_PHI3 = _LLAMA | {"sliding_window": 8}
_GEMMA2 = _HEADS_OF_16 | {"sliding_window": 8, "query_pre_attn_scalar": 20}
_LATENT = _LLAMA | {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "first_k_dense_replace": 1,
}


def _rope(kind: str, **options: Any) -> dict[str, Any]:
    return {"rope_scaling": {"rope_type": kind, **options}}


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", _GPT2),
    "gpt2-inverse-layer": (
        "GPT2",
        _GPT2 | {"scale_attn_by_inverse_layer_idx": True, "tie_word_embeddings": False},
    ),
    "gptj": ("GPTJ", _GPT2 | {"rotary_dim": 8}),
    "codegen": ("CodeGen", _GPT2 | {"rotary_dim": 8, "n_ctx": CONTEXT}),
    "gpt_neo": (
        "GPTNeo",
        _COMMON
        | {
            "hidden_size": 64,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 8,
            "max_position_embeddings": CONTEXT,
        },
    ),
    "gpt_neox": ("GPTNeoX", _BASE | {"intermediate_size": 96}),
    "gpt_neox-whole-rotary": ("GPTNeoX", _BASE | {"intermediate_size": 96, "rotary_pct": 1.0}),
    "opt": ("OPT", _BASE | {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    "opt-projected": ("OPT", _BASE | {"ffn_dim": 96, "word_embed_proj_dim": 32}),
    "llama": ("Llama", _LLAMA),
    "llama-tied": ("Llama", _LLAMA | {"tie_word_embeddings": True}),
    "llama-biased": ("Llama", _LLAMA | {"attention_bias": True, "mlp_bias": True}),
    "llama-linear": ("Llama", _LLAMA | _rope("linear", factor=4.0)),
    "llama-dynamic": ("Llama", _LLAMA | _rope("dynamic", factor=4.0)),
    "llama-yarn": (
        "Llama",
        _LLAMA | _rope("yarn", factor=4.0, original_max_position_embeddings=64),
    ),
    "llama-llama3": (
        "Llama",
        _LLAMA
        | _rope(
            "llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
    ),
    "arcee": ("Arcee", _LLAMA),
    "cohere": ("Cohere", _LLAMA | {"use_qk_norm": True}),
    "glm": ("Glm", _HEADS_OF_16),
    "helium": ("Helium", _HEADS_OF_16),
    "smollm3": ("SmolLM3", _LLAMA),
    "stablelm": ("StableLm", _LLAMA),
    "olmo": ("Olmo", _LLAMA | {"clip_qkv": 1.5}),
    "olmo2": ("Olmo2", _LLAMA),
    "qwen2": ("Qwen2", _LLAMA),
    "qwen2-window": (
        "Qwen2",
        _LLAMA | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", _HEADS_OF_16),
    "qwen3_moe": (
        "Qwen3Moe",
        _HEADS_OF_16
        | {
            "moe_intermediate_size": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "decoder_sparse_step": 1,
        },
    ),
    "gemma": ("Gemma", _HEADS_OF_16),
    "gemma2": (
        "Gemma2",
        _GEMMA2 | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 10.0},
    ),
    "gemma3_text": (
        "Gemma3Text",
        _GEMMA2 | {"layer_types": ["sliding_attention", "full_attention"]},
    ),
    "gpt_oss": (
        "GptOss",
        _HEADS_OF_16 | {"sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "nemotron": ("Nemotron", _LLAMA),
    "granite": (
        "Granite",
        _LLAMA
        | {
            "attention_multiplier": 0.2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "logits_scaling": 2.0,
        },
    ),
    "phi": ("Phi", _LLAMA),
    "phi3": ("Phi3", _PHI3),
    "phi3-longrope": (
        "Phi3",
        _PHI3
        | {"original_max_position_embeddings": 64, "sliding_window": None}
        | {
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0 + i / 8 for i in range(8)],
                "long_factor": [2.0 + i for i in range(8)],
            }
        },
    ),
    "mistral": ("Mistral", _LLAMA | {"sliding_window": 8}),
    "mpt": (
        "Mpt",
        _COMMON
        | {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": CONTEXT}
        | {"expansion_ratio": 2},
    ),
    "bloom": (
        "Bloom",
        _COMMON | {"hidden_size": 64, "n_layer": 2, "n_head": 4, "tie_word_embeddings": False},
    ),
    "gpt_bigcode": ("GPTBigCode", _GPT2),
    "gpt_bigcode-multi-head": ("GPTBigCode", _GPT2 | {"multi_query": False}),
    "falcon": ("Falcon", _FALCON | {"multi_query": True}),
    "falcon-multi-head": ("Falcon", _FALCON | {"multi_query": False}),
    "falcon-alibi": ("Falcon", _FALCON | {"multi_query": False, "alibi": True}),
    "falcon-new-decoder": (
        "Falcon",
        _FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    "deepseek_v3": ("DeepseekV3", _LATENT),
}
"""Name -> (class stem in transformers, config options); a name is model_type[-variant]."""


def make_model(name: str, seed: int = 0, **changes: Any) -> Any:
    """A random model of `MODELS`, float32, in evaluation mode."""
    stem, options = MODELS[name]
    config = getattr(transformers, f"{stem}Config")(**(options | changes))
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    with warnings.catch_warnings():  # some of transformers' files warn when they are imported
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            noise = 0.15 * torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(noise)
            else:
                parameter.add_(noise / 3)
        # Gemma multiplies its embeddings by 8 (and ties them): text would repeat one token.
        if stem.startswith("Gemma"):
            model.get_input_embeddings().weight.mul_(0.1)
    return model.float().eval()


def write_tokenizer(folder: Path) -> None:
    """Save a byte-level tokenizer of `VOCABULARY` tokens into `folder`."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=byte_level(), bos_token="<s>", eos_token="</s>"
    )
    assert len(wrapped) == VOCABULARY
    wrapped.save_pretrained(folder)


def write_model(folder: Path, name: str, seed: int = 0, **changes: Any) -> Path:
    """Save a tiny model with its tokenizer to a new folder and return it."""
    make_model(name, seed, **changes).save_pretrained(folder)
    write_tokenizer(folder)
    return folder
