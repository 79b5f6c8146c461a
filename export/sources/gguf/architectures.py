"""What the architectures of GGUF files are in transformers, and what their keys are called there.

Names of architectures and keys are llama.cpp's (`gguf.constants`). A key that is not in a table
here is refused by name: it would change the model unheard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ARCHITECTURES", "Architecture"]

_DECODER = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_LAYER_NORM = {k: v for k, v in _DECODER.items() if k != "attention.layer_norm_rms_epsilon"}
_SOFTCAPS = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
_WINDOW = {"attention.sliding_window": "sliding_window"}
_GELU = {"hidden_activation": "gelu_pytorch_tanh"}


@dataclass(frozen=True)
class Architecture:
    """One architecture of GGUF."""

    model_type: str
    """In transformers."""
    keys: Mapping[str, str] = field(default_factory=lambda: _DECODER)
    """Key, without the architecture's name, to attribute of the configuration."""
    implied: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that the architecture fixes in llama.cpp, whatever transformers' default is."""
    biases: Mapping[str, str] = field(default_factory=dict)
    """Tensor whose presence in the first layer sets the attribute."""
    transform: str = ""
    """How tensors differ from transformers': "permuted" (rows of queries and keys are in the order
    of llama.cpp's rotation), "shifted" (a norm's weight is stored plus 1), "turned" (matrices of
    GPT-2's Conv1D are stored transposed), or "" for not at all."""
    partial_rotary: bool = False
    """Whether `rope.dimension_count` may be less than the size of a head."""


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(
        "llama",
        keys=_DECODER | _WINDOW,
        biases={"attn_q.bias": "attention_bias", "ffn_gate.bias": "mlp_bias"},
        transform="permuted",
    ),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3", biases={"attn_q.bias": "attention_bias"}),
    "qwen3moe": Architecture(
        "qwen3_moe",
        keys=_DECODER
        | {
            "expert_count": "num_experts",
            "expert_used_count": "num_experts_per_tok",
            "expert_feed_forward_length": "moe_intermediate_size",
            "expert_weights_norm": "norm_topk_prob",
        },
        implied={"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []},
        biases={"attn_q.bias": "attention_bias"},
    ),
    "gemma": Architecture("gemma", implied=_GELU, transform="shifted"),
    "gemma2": Architecture(
        "gemma2", keys=_DECODER | _SOFTCAPS | _WINDOW, implied=_GELU, transform="shifted"
    ),
    "gemma3": Architecture(
        "gemma3_text",
        keys=_DECODER
        | _WINDOW
        | {"rope.freq_base_swa": "rope_local_base_freq"}
        | {"final_logit_softcapping": "final_logit_softcapping"},
        implied=_GELU | {"rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0},
        transform="shifted",
    ),
    "phi3": Architecture("phi3", keys=_DECODER | _WINDOW, partial_rotary=True),
    "granite": Architecture(
        "granite",
        keys=_DECODER
        | {
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        },
        biases={"attn_q.bias": "attention_bias", "ffn_gate.bias": "mlp_bias"},
        transform="permuted",
    ),
    "smollm3": Architecture(
        "smollm3", biases={"attn_q.bias": "attention_bias"}, transform="permuted"
    ),
    "stablelm": Architecture(
        "stablelm",
        keys=_LAYER_NORM
        | {
            "attention.layer_norm_epsilon": "layer_norm_eps",
            "use_parallel_residual": "use_parallel_residual",
        },
        biases={"attn_q.bias": "use_qkv_bias", "attn_q_norm.weight": "qk_layernorm"},
        partial_rotary=True,
    ),
    "nemotron": Architecture(
        "nemotron",
        keys=_LAYER_NORM | {"attention.layer_norm_epsilon": "norm_eps"},
        transform="shifted",
        partial_rotary=True,
    ),
    "gpt2": Architecture(
        "gpt2",
        keys={
            "context_length": "n_positions",
            "embedding_length": "n_embd",
            "block_count": "n_layer",
            "feed_forward_length": "n_inner",
            "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        transform="turned",
    ),
}
"""By the value of `general.architecture`."""
