"""A Markov table behind the `Engine` contract: exact, instant, and able to fail on demand."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import EngineInfo, check_forward
from specdec.engines.errors import EngineError

PADDING_LOGIT = 50.0


class TableEngine:
    """Next-token logits that depend on the last `order` cached tokens.

    Attributes:
        cached: the ids in the cache; another engine may share the very list.
        calls: (length before, token ids, num_logits) of every pass.
        fail_at: number of the pass (from 0) that raises `EngineError`, or None.
        poison: positions whose row becomes NaN.
    """

    def __init__(
        self,
        table: NDArray[np.floating[Any]],
        *,
        name: str = "target",
        max_length: int = 64,
        padding: int = 0,
        share_cache_with: TableEngine | None = None,
        prefill_chunk: int = 256,
    ) -> None:
        """Wrap logits.

        Args:
            table: float [V + 1] * order + [V]; index V stands for "before the text".
            padding: further columns, with a high logit that must never win.
        """
        self.table = table
        self.order = table.ndim - 1
        vocab_size = table.shape[-1]
        self.info = EngineInfo(
            name=name,
            vocab_size=vocab_size,
            logits_width=vocab_size + padding,
            max_length=max_length,
            num_layers=1,
            num_attention_heads=1,
            num_kv_heads=1,
            head_size=1,
            storage="fp64",
            compute="fp64",
            backend="table",
            device="cpu",
        )
        self.prefill_chunk = prefill_chunk
        self.cached: list[int] = [] if share_cache_with is None else share_cache_with.cached
        self.calls: list[tuple[int, tuple[int, ...], int]] = []
        self.fail_at: int | None = None
        self.poison: dict[int, float] = {}
        self.closed = False
        # One buffer for every pass, overwritten each time, as a device engine has.
        self._buffer = np.full((1, 64, vocab_size + padding), PADDING_LOGIT, dtype=table.dtype)

    @property
    def length(self) -> int:
        return len(self.cached)

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> NDArray[np.floating[Any]]:
        assert not self.closed
        rows = check_forward(self.info, self.length, token_ids, num_logits)
        tokens = tuple(int(t) for t in token_ids[0])
        self.calls.append((self.length, tokens, num_logits))
        if self.fail_at is not None and len(self.calls) - 1 == self.fail_at:
            raise EngineError(f"the {self.info.name} engine failed on purpose")
        self.cached.extend(tokens)
        out = self._buffer[:, :num_logits]
        for i in range(num_logits):
            end = self.length - num_logits + i + 1
            out[0, i, : self.info.vocab_size] = self.logits_after(self.cached[:end])
            if end in self.poison:
                out[0, i, 0] = self.poison[end]
        assert rows == len(tokens)
        return out

    def logits_after(self, ids: list[int]) -> NDArray[np.floating[Any]]:
        """Logits [V] of the token after `ids`, without touching the cache."""
        start = self.info.vocab_size
        context = [start] * max(0, self.order - len(ids)) + list(ids[-self.order :])
        return self.table[tuple(context)]

    def truncate(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"length {length} is outside 0 .. {self.length}")
        del self.cached[length:]

    def close(self) -> None:
        self.closed = True


def random_table(
    seed: int, vocab_size: int, order: int = 1, spread: float = 1.5, dtype: Any = np.float64
) -> NDArray[np.floating[Any]]:
    """Gaussian logits [V + 1] * order + [V]."""
    shape = (vocab_size + 1,) * order + (vocab_size,)
    return (np.random.default_rng(seed).normal(size=shape) * spread).astype(dtype)


def nearby_table(
    table: NDArray[np.floating[Any]], seed: int, noise: float = 0.7
) -> NDArray[np.floating[Any]]:
    """A draft's table: the target's with Gaussian noise."""
    wobble = np.random.default_rng(seed).normal(size=table.shape) * noise
    return (table + wobble).astype(table.dtype)
