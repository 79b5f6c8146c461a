"""Optimum export of a decoder with an in-place KV cache.

Optimum knows how each architecture is exported (its `OnnxConfig` and model patcher). This
module subclasses whatever Optimum registers for the model, so that the exported graph has

    inputs   input_ids [batch, M] int64, position_ids [batch, M] int64,
             past_key_values.<i>.key|value [batch, kv_heads, capacity, head_size],
             seqlens_k [batch] int32 (total length - 1), total_sequence_length [1] int32,
             logit_rows [N] int64 (which of the M rows to score)
    outputs  logits [batch, N, width], present.<i>.key|value (same buffers as past)

No attention mask grows and logits exist only for the rows asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache

from specdec.export.graphs.attention import NO_WINDOW, cached_attention
from specdec.export.graphs.rotary import RotaryFolder

__all__ = ["ATTENTION", "in_place_config"]

ATTENTION = "specdec_in_place"
"""Name under which the attention function is registered with transformers."""
_TRACE_CAPACITY = 32
_TRACE_ROWS = 3
_TRACE_PAST = 5


class _TracedCache(Cache):
    """Hands each layer's past to the attention function and collects its present.

    transformers calls `update(key, value, layer)` and then the attention function of the same
    layer; `update` passes the new rows through and notes the layer.
    """

    def __init__(
        self,
        past: list[tuple[torch.Tensor, torch.Tensor]],
        seqlens_k: torch.Tensor,
        total_length: torch.Tensor,
        rotary: RotaryFolder,
    ) -> None:
        self.past = past
        self.present: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * len(past)
        self.seqlens_k = seqlens_k
        self.total_length = total_length
        self.rotary = rotary
        self.masked_windows: set[int] = set()
        self.attended_windows: set[int] = set()
        self.layer = -1
        self.layers: list[Any] = []

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, cache_kwargs: Any = None
    ) -> tuple[Any, Any]:
        self.layer = layer_idx
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def get_mask_sizes(self, cache_position: Any, layer_idx: int) -> tuple[int, int]:
        return int(cache_position.shape[0]), 0

    def get_max_cache_shape(self, layer_idx: int = 0) -> int:
        return int(self.past[0][0].shape[2])

    @property
    def is_sliding(self) -> list[bool]:
        return [False] * len(self.past)

    @property
    def is_compileable(self) -> bool:
        return False

    def __len__(self) -> int:
        return len(self.past)

    def __bool__(self) -> bool:
        return True


_active: list[_TracedCache] = []


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """transformers attention interface: q, k, v are [batch, heads, M, head_size]."""
    cache = _active[-1]
    layer = cache.layer
    past_key, past_value = cache.past[layer]
    # Head counts are static; under tracing, `shape` would record them as graph values.
    num_heads, num_kv_heads = int(query.shape[1]), int(key.shape[1])
    head_size = int(query.shape[3])

    def packed(x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.transpose(1, 2).reshape(*x.shape[0:1], x.shape[2], heads * head_size)

    rotary = cache.rotary.take()
    if sliding_window:
        cache.attended_windows.add(int(sliding_window))
    out, present_key, present_value = cached_attention(
        packed(query, num_heads),
        packed(key, num_kv_heads),
        packed(value, num_kv_heads),
        past_key,
        past_value,
        cache.seqlens_k,
        cache.total_length,
        rotary.cos if rotary else None,
        rotary.sin if rotary else None,
        s_aux,
        num_heads,
        num_kv_heads,
        int(rotary.interleaved) if rotary else 0,
        int(sliding_window) if sliding_window else NO_WINDOW,
        float(scaling if scaling is not None else head_size**-0.5),
        float(softcap or 0.0),
    )
    cache.present[layer] = (present_key, present_value)
    return out.reshape(query.shape[0], query.shape[2], num_heads, head_size), None


def _no_mask(*_: Any, local_size: int | None = None, **__: Any) -> None:
    """transformers mask interface: the lengths replace the mask; note a sliding window."""
    if _active and local_size:
        _active[-1].masked_windows.add(int(local_size))


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, _no_mask)


def in_place_config(base: type[Any], max_length: int) -> type[Any]:
    """Subclass an Optimum `OnnxConfig` so that it exports the in-place layout.

    Args:
        base: the config class Optimum registers for the architecture and text-generation.
        max_length: capacity of the KV cache in tokens (rows of the rotary tables).
    """

    class InPlaceOnnxConfig(base):
        @property
        def inputs(self) -> dict[str, dict[int, str]]:
            named: dict[str, dict[int, str]] = {
                "input_ids": {0: "batch", 1: "rows"},
                "position_ids": {0: "batch", 1: "rows"},
            }
            for layer in range(self._normalized_config.num_layers):
                for part in ("key", "value"):
                    named[f"past_key_values.{layer}.{part}"] = {0: "batch", 2: "capacity"}
            named["seqlens_k"] = {0: "batch"}
            named["total_sequence_length"] = {}
            named["logit_rows"] = {0: "num_logits"}
            return named

        @property
        def outputs(self) -> dict[str, dict[int, str]]:
            named: dict[str, dict[int, str]] = {"logits": {0: "batch", 1: "num_logits"}}
            for layer in range(self._normalized_config.num_layers):
                for part in ("key", "value"):
                    named[f"present.{layer}.{part}"] = {0: "batch", 2: "capacity"}
            return named

        def generate_dummy_inputs(self, framework: str = "pt", **_: Any) -> dict[str, Any]:
            return _dummy_inputs(self._config, self._normalized_config.num_layers)

        def patch_model_for_export(self, model: Any, model_kwargs: Any = None) -> Any:
            patcher = _patcher(self._MODEL_PATCHER, max_length)
            return patcher(self, model, model_kwargs=model_kwargs)

    return InPlaceOnnxConfig


def kv_geometry(config: Any) -> tuple[int, int]:
    """(num_kv_heads, head_size) of a transformers text config."""
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    every_head = getattr(config, "new_decoder_architecture", False)  # Falcon's
    if getattr(config, "multi_query", False) and not every_head:
        kv_heads = 1
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return kv_heads, head_size


def _dummy_inputs(config: Any, num_layers: int) -> dict[str, Any]:
    kv_heads, head_size = kv_geometry(config.get_text_config())
    shape = (1, kv_heads, _TRACE_CAPACITY, head_size)
    total = _TRACE_PAST + _TRACE_ROWS
    return {
        "input_ids": torch.arange(1, 1 + _TRACE_ROWS)[None],
        "position_ids": torch.arange(_TRACE_PAST, total)[None],
        "past_key_values": [(torch.zeros(shape), torch.zeros(shape)) for _ in range(num_layers)],
        "seqlens_k": torch.tensor([total - 1], dtype=torch.int32),
        "total_sequence_length": torch.tensor([total], dtype=torch.int32),
        "logit_rows": torch.tensor([_TRACE_ROWS - 2, _TRACE_ROWS - 1]),
    }


def _patcher(base: type[Any], max_length: int) -> type[Any]:
    """Subclass an Optimum model patcher: same patches, our forward."""

    class InPlacePatcher(base):
        def __init__(self, config: Any, model: Any, model_kwargs: Any = None) -> None:
            super().__init__(config, model, model_kwargs=model_kwargs)
            _, head_size = kv_geometry(model.config.get_text_config())
            rotary = RotaryFolder(model, max_length, head_size)
            self.patched_forward = in_place_forward(model, self.orig_forward, rotary)
            self._implementation = model.config._attn_implementation

        def __enter__(self) -> Any:
            _set_attention(self._model, ATTENTION)
            return super().__enter__()

        def __exit__(self, *exc_info: Any) -> None:
            super().__exit__(*exc_info)
            _set_attention(self._model, self._implementation)

    return InPlacePatcher


def _set_attention(model: Any, name: str) -> None:
    for module in model.modules():
        if hasattr(module, "config") and hasattr(module.config, "_attn_implementation"):
            module.config._attn_implementation = name


def in_place_forward(
    model: Any, forward: Callable[..., Any], rotary: RotaryFolder
) -> Callable[..., Any]:
    """The traced function: the model's own `forward` over a fixed-capacity cache.

    Args:
        model: a transformers causal language model whose attention is `ATTENTION`.
        forward: its unpatched bound `forward`.
        rotary: the rotations that the attention node takes over.
    """
    accepted = set(inspect.signature(forward).parameters)

    def patched(
        input_ids: Any,
        position_ids: Any,
        past_key_values: Any,
        seqlens_k: Any,
        total_sequence_length: Any,
        logit_rows: Any,
    ) -> dict[str, Any]:
        cache = _TracedCache(list(past_key_values), seqlens_k, total_sequence_length, rotary)
        arguments: dict[str, Any] = {
            "input_ids": input_ids,
            "position_ids": position_ids,
            "past_key_values": cache,
            "use_cache": True,
        }
        if "cache_position" in accepted:
            arguments["cache_position"] = position_ids[0]
        head = model.get_output_embeddings()
        hook = head.register_forward_pre_hook(
            lambda _, args: (args[0].index_select(1, logit_rows), *args[1:])
        )
        _active.append(cache)
        try:
            with rotary.folding():
                logits = forward(**arguments)[0]
            _check_windows(cache)
        finally:
            _active.pop()
            hook.remove()
        return {"logits": logits, "present": cache.present}

    return patched


def _check_windows(cache: _TracedCache) -> None:
    """Refuse a sliding window that only the mask applied, because the mask is removed."""
    lost = cache.masked_windows - cache.attended_windows
    if lost:
        raise NotImplementedError(f"sliding window {sorted(lost)} is applied by the mask alone")
