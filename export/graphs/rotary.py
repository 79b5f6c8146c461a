"""Move rotary embeddings out of the graph and into the attention node.

transformers rotates queries and keys with a module-level `apply_rotary_pos_emb(q, k, cos, sin)`
whose cos and sin come from a `...RotaryEmbedding` module. While a model is traced,
`RotaryFolder` lets that function pass q and k through and remembers which tables it would have
used; the attention node then rotates by table. A rotation is folded only when the node's own
formula, tried on random numbers first, reproduces the model's; the architecture's name does not
matter. Everything else stays in the graph as written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from specdec.export.graphs.attention import rotate

__all__ = ["FoldedRotary", "RotaryFolder"]

_APPLY = "apply_rotary_pos_emb"
_TOLERANCE = 1e-5
_HEAD_MULTIPLE = 16
"""Channels of a head come in multiples of this where the attention node rotates."""


@dataclass(frozen=True)
class FoldedRotary:
    """Tables of one rotary module: float32 [capacity, rotary_size / 2] each."""

    cos: torch.Tensor
    sin: torch.Tensor
    interleaved: bool


class RotaryFolder:
    """Finds the foldable rotations of a model and records the one each layer uses."""

    def __init__(self, model: Any, capacity: int, head_size: int) -> None:
        """Build the tables.

        Args:
            model: a transformers causal language model.
            capacity: rows of the tables, the engine's `max_length`.
            head_size: channels of one attention head.
        """
        self.pending: FoldedRotary | None = None
        self._apply_modules = _modules_with_apply(model)
        self._by_module: dict[Any, FoldedRotary] = {}
        self._by_output: dict[int, tuple[Any, FoldedRotary]] = {}
        for module in model.modules():
            if type(module).__name__.endswith("RotaryEmbedding") and self._apply_modules:
                folded = self._fold(module, capacity, head_size)
                if folded is not None:
                    self._by_module[module] = folded

    @contextmanager
    def folding(self) -> Iterator[None]:
        """While active, foldable rotations pass through and `take` returns their tables."""
        hooks = [m.register_forward_hook(self._note_output) for m in self._by_module]
        originals = [(m, getattr(m, _APPLY)) for m in self._apply_modules]
        for module, original in originals:
            setattr(module, _APPLY, self._passing(original))
        try:
            yield
        finally:
            for module, original in originals:
                setattr(module, _APPLY, original)
            for hook in hooks:
                hook.remove()
            self._by_output.clear()
            self.pending = None

    def take(self) -> FoldedRotary | None:
        """The rotation the current layer asked for, once."""
        folded, self.pending = self.pending, None
        return folded

    def _note_output(self, module: Any, args: Any, output: Any) -> None:
        self._by_output[id(output[0])] = (output, self._by_module[module])

    def _passing(self, original: Any) -> Any:
        def apply(q: Any, k: Any, cos: Any, sin: Any, *args: Any, **kwargs: Any) -> Any:
            known = self._by_output.get(id(cos))
            if known is None:
                return original(q, k, cos, sin, *args, **kwargs)
            self.pending = known[1]
            return q, k

        return apply

    def _fold(self, module: Any, capacity: int, head_size: int) -> FoldedRotary | None:
        """Tables for `module` if one of the node's formulas reproduces the model's rotation."""
        if head_size % _HEAD_MULTIPLE:
            return None
        probe = torch.zeros(1, 1, dtype=torch.float32)
        with torch.no_grad():
            try:
                cos, sin = module(probe, torch.arange(capacity)[None])
            except (TypeError, ValueError, RuntimeError):
                return None  # another calling convention: leave it in the graph
        for cos_half, sin_half in _halves(cos[0].float(), sin[0].float()):
            for interleaved in (False, True):
                if 2 * cos_half.shape[-1] != head_size:
                    continue
                folded = FoldedRotary(cos_half.contiguous(), sin_half.contiguous(), interleaved)
                if all(_agrees(m, cos, sin, folded, head_size) for m in self._apply_modules):
                    return folded
        return None


def _modules_with_apply(model: Any) -> list[Any]:
    names = {type(m).__module__ for m in model.modules()}
    return [sys.modules[name] for name in sorted(names) if hasattr(sys.modules[name], _APPLY)]


def _halves(cos: torch.Tensor, sin: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The layouts in which transformers stores one angle per pair, [capacity, pairs]."""
    half = cos.shape[-1] // 2
    yield cos[:, :half], sin[:, :half]
    yield cos[:, 0::2], sin[:, 0::2]
    yield cos, sin


def _agrees(
    module: Any, cos: torch.Tensor, sin: torch.Tensor, folded: FoldedRotary, head_size: int
) -> bool:
    """Whether the node's rotation equals the model's on random queries and keys."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(cos.shape[1], generator=generator)[:7]
    q = torch.randn(1, 2, len(rows), head_size, generator=generator)
    k = torch.randn(1, 1, len(rows), head_size, generator=generator)
    try:
        expected = getattr(module, _APPLY)(q, k, cos[:, rows], sin[:, rows])
    except (TypeError, ValueError, RuntimeError):
        return False
    for x, want in zip((q, k), expected, strict=True):
        got = rotate(x, folded.cos[rows], folded.sin[rows], folded.interleaved)
        if got.shape != want.shape or (got - want).abs().max() > _TOLERANCE:
            return False
    return True
