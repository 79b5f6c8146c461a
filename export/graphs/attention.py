"""The cached attention operator: the one place that writes its ONNX node.

Every supported architecture calls one custom operator, `specdec::cached_attention`, through
transformers' attention interface. The operator has an eager implementation (so a model can be
traced and checked in torch) and an ONNX form,

    com.microsoft::GroupQueryAttention, three outputs,

whose `present_key` and `present_value` share the buffers of `past_key` and `past_value`:
positions `past .. past + M - 1` are written and everything later is left alone, so a cache of
fixed capacity is truncated by passing a smaller length. With a rotary table the operator also
rotates queries and keys (Su et al., 2021), which saves a dozen small nodes a layer.

    scores[i, j] = softcap(scale * <R_i q_i, R_j k_j>)   for past + i - window < j <= past + i
    out[i]       = sum_j softmax(scores[i, :], sink)_j v_j
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch
from torch.onnx import register_custom_op_symbolic, symbolic_helper

from specdec.export.errors import UnsupportedModelError

__all__ = [
    "IN_PLACE_ADVICE",
    "NO_WINDOW",
    "OPSET",
    "cached_attention",
    "require_cached_attention",
    "rotate",
]

IN_PLACE_ADVICE = "the TensorRT backends need; use --backend onnxruntime"
"""End of the message of `require_cached_attention` for callers that need the in-place cache."""

OPSET = 18
"""ONNX opset of the exported graphs (the in-place attention is a contrib operator)."""
NO_WINDOW = -1
"""Value of `window` for full causal attention."""


@torch.library.custom_op("specdec::cached_attention", mutates_args=())
def cached_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    past_key: torch.Tensor,
    past_value: torch.Tensor,
    seqlens_k: torch.Tensor,
    total_length: torch.Tensor,
    cos_table: torch.Tensor | None,
    sin_table: torch.Tensor | None,
    head_sink: torch.Tensor | None,
    num_heads: int,
    num_kv_heads: int,
    interleaved: int,
    window: int,
    scale: float,
    softcap: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attend M new rows to a fixed-capacity cache and append their keys and values.

    Args:
        query: float, shape [batch, M, num_heads * head_size].
        key: float, shape [batch, M, num_kv_heads * head_size].
        value: as `key`.
        past_key: float, shape [batch, num_kv_heads, capacity, head_size].
        past_value: as `past_key`.
        seqlens_k: int32, shape [batch], total length after the call minus one.
        total_length: int32, shape [1], total length after the call (past + M).
        cos_table: float, shape [capacity, rotary_size / 2], or None for no rotation here.
        sin_table: as `cos_table`.
        head_sink: float, shape [num_heads], a logit per head that joins the softmax, or None.
        num_heads: query heads.
        num_kv_heads: key and value heads; a divisor of `num_heads`.
        interleaved: 1 rotates pairs (2i, 2i + 1), 0 pairs (i, i + rotary_size / 2).
        window: number of positions a row sees, itself included; `NO_WINDOW` for all.
        scale: factor on the query-key products.
        softcap: s in s * tanh(x / s) applied to the scaled products; 0 for none.

    Returns:
        The attended rows, shape [batch, M, num_heads * head_size], and the updated caches.
    """
    batch, rows, _ = query.shape
    head_size = past_key.shape[-1]
    total = int(total_length.reshape(-1)[0])
    past = total - rows

    def heads(x: torch.Tensor, count: int) -> torch.Tensor:
        return x.reshape(batch, rows, count, head_size).transpose(1, 2)

    queries, new_keys = heads(query, num_heads), heads(key, num_kv_heads)
    if cos_table is not None and sin_table is not None:
        cos, sin = cos_table[past:total], sin_table[past:total]
        queries = rotate(queries, cos, sin, bool(interleaved))
        new_keys = rotate(new_keys, cos, sin, bool(interleaved))
    present_key, present_value = past_key.clone(), past_value.clone()
    present_key[:, :, past:total] = new_keys
    present_value[:, :, past:total] = heads(value, num_kv_heads)
    groups = num_heads // num_kv_heads
    keys = present_key[:, :, :total].repeat_interleave(groups, dim=1)
    values = present_value[:, :, :total].repeat_interleave(groups, dim=1)
    scores = scale * queries @ keys.transpose(-1, -2)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    row = torch.arange(past, total)[:, None]
    column = torch.arange(total)[None, :]
    hidden = column > row
    if window != NO_WINDOW:
        hidden |= column <= row - window
    scores = scores.masked_fill(hidden, float("-inf"))
    if head_sink is not None:
        sink = head_sink.reshape(1, -1, 1, 1).expand(batch, -1, rows, 1)
        scores = torch.cat([scores, sink], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., :total]
    out = (weights @ values).transpose(1, 2).reshape(batch, rows, num_heads * head_size)
    return out, present_key, present_value


def rotate(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> torch.Tensor:
    """Rotary embedding of the leading `2 * cos.shape[-1]` channels of each head.

    Args:
        x: float, shape [batch, heads, M, head_size].
        cos: float, shape [M, rotary_size / 2]; `sin` alike.
        interleaved: which channels form a pair, see `cached_attention`.
    """
    half = cos.shape[-1]
    turned, passed = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned[..., :half], turned[..., half:]
    pair = (first * cos - second * sin, second * cos + first * sin)
    joined = torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)
    return torch.cat([joined, passed], dim=-1)


def require_cached_attention(graph: ir.Model, advice: str) -> None:
    """Refuse a traced graph without the in-place attention node.

    Raises:
        UnsupportedModelError: "... the in-place cache, which `advice`".
    """
    if not any(node.op_type == "GroupQueryAttention" for node in graph.graph):
        raise UnsupportedModelError(
            f"the model's attention does not fit the in-place cache, which {advice}"
        )


@cached_attention.register_fake
def _(query: torch.Tensor, key: Any, value: Any, past_key: Any, past_value: Any, *_: Any) -> Any:
    return torch.empty_like(query), torch.empty_like(past_key), torch.empty_like(past_value)


def _group_query_attention(graph: Any, *operands: Any) -> Any:
    """Emit the ONNX Runtime form of `cached_attention` (a TorchScript symbolic)."""
    query, key, value, past_key, past_value, seqlens_k, total_length = operands[:7]
    cos_table, sin_table, head_sink = operands[7:10]
    num_heads, num_kv_heads, interleaved, window, scale, softcap = (
        symbolic_helper._maybe_get_const(x, kind)
        for x, kind in zip(operands[10:], "iiiiff", strict=True)
    )
    rotary = not symbolic_helper._is_none(cos_table)
    absent = graph.op("prim::Constant")
    absent.setType(torch._C.OptionalType.ofTensor())
    inputs = [query, key, value, past_key, past_value, seqlens_k, total_length]
    inputs += [cos_table, sin_table] if rotary else [absent, absent]
    inputs += [absent, absent]  # position_ids (derived from the lengths), attention_bias
    inputs += [absent if symbolic_helper._is_none(head_sink) else head_sink]
    attributes: dict[str, Any] = {"num_heads_i": num_heads, "kv_num_heads_i": num_kv_heads}
    attributes["scale_f"] = scale
    if rotary:
        attributes |= {"do_rotary_i": 1, "rotary_interleaved_i": interleaved}
    if window != NO_WINDOW:
        attributes["local_window_size_i"] = window
    if softcap:
        attributes["softcap_f"] = softcap
    out, present_key, present_value = graph.op(
        "com.microsoft::GroupQueryAttention", *inputs, outputs=3, **attributes
    )
    out.setType(query.type())
    present_key.setType(past_key.type())
    present_value.setType(past_value.type())
    return out, present_key, present_value


register_custom_op_symbolic("specdec::cached_attention", _group_query_attention, OPSET)
