"""Engines that cache their logits by context, so that the real loop can run thousands of times.

Logits are a function of what is in the cache and of what is fed. A `ReplayEngine` stands before
an engine and records every row that is written: which token, after which rows, by which model (on
a shared cache the draft's rows are not the target's). When all rows that a pass asks for are
known it answers from memory; otherwise it brings the real cache to the noted state, by real
truncations and passes, and runs the very pass it was asked for.

The loop above sees an engine like any other and does its work in full. A loop that leaves a
wrong row in the cache gets the logits of that wrong cache, as it would without the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import Engine, EngineInfo, check_forward
from specdec.runtime.meter import chunk_size

__all__ = ["ReplayCache", "ReplayEngine"]

_MEMORY_BYTES = 1 << 29


class _Row:
    """One row of a cache: equal rows after equal rows are one object."""

    __slots__ = ("engine", "following", "logits", "token")

    def __init__(self, token: int, engine: Engine | None) -> None:
        self.token = token
        self.engine = engine
        self.following: dict[tuple[int, int], _Row] = {}
        self.logits: NDArray[np.floating[Any]] | None = None


class ReplayCache:
    """Rows that one KV cache should hold, and those that it holds.

    Attributes:
        passes: passes the engines really ran.
        replays: passes answered from memory.
    """

    def __init__(self, owner: Engine) -> None:
        """Follow the cache of `owner`, and empty it."""
        self.passes = self.replays = 0
        self._owner = owner
        self._bytes = 0
        self.forget()

    def forget(self) -> None:
        """Empty the cache and the memory."""
        self._bytes = 0
        self._root = _Row(-1, None)
        self._noted: list[_Row] = []
        self._real: list[_Row] = []
        self._owner.truncate(0)

    @property
    def length(self) -> int:
        """Rows the loop believes to be cached."""
        return len(self._noted)

    def truncate(self, length: int) -> None:
        """Drop the recorded rows from `length` on."""
        if not 0 <= length <= len(self._noted):
            raise ValueError(f"cannot truncate to {length}; allowed is 0 .. {len(self._noted)}")
        del self._noted[length:]

    def append(self, engine: Engine, tokens: Sequence[int], num_logits: int) -> NDArray[Any]:
        """Record rows written by `engine`; returns float [num_logits, logits_width]."""
        rows = self._walk(engine, tokens)
        known = [row.logits for row in rows[len(rows) - num_logits :] if row.logits is not None]
        if len(known) == num_logits:
            self.replays += num_logits > 0
            logits = np.stack(known) if known else np.empty((0, engine.info.logits_width))
        else:
            logits = self._run(engine, rows, num_logits)
        self._noted.extend(rows)
        return logits

    def _walk(self, engine: Engine, tokens: Sequence[int]) -> list[_Row]:
        row = self._noted[-1] if self._noted else self._root
        rows = []
        for token in tokens:
            key = (token, id(engine))
            if key not in row.following:
                row.following[key] = _Row(token, engine)
            row = row.following[key]
            rows.append(row)
        return rows

    def _run(self, engine: Engine, rows: list[_Row], num_logits: int) -> NDArray[Any]:
        self._catch_up()
        logits = self._feed(engine, rows, num_logits)
        for row, scores in zip(rows[len(rows) - num_logits :], logits, strict=True):
            if row.logits is None and self._bytes + scores.nbytes <= _MEMORY_BYTES:
                row.logits = scores
                self._bytes += scores.nbytes
        return logits

    def _catch_up(self) -> None:
        """Make the real cache hold the recorded rows, each written by its own model."""
        if self._owner.length != len(self._real):  # passes beside the loop were run
            self._real = []
            self._owner.truncate(0)
        shared = 0
        for real, noted in zip(self._real, self._noted, strict=False):
            if real is not noted:
                break
            shared += 1
        if shared < len(self._real):
            self._owner.truncate(shared)
            del self._real[shared:]
        start = shared
        while start < len(self._noted):
            engine = self._noted[start].engine
            assert engine is not None, "every row but the root has a writer"
            end = start + 1
            most = min(start + chunk_size(engine), len(self._noted))
            while end < most and self._noted[end].engine is engine:
                end += 1
            self._feed(engine, self._noted[start:end], 0)
            start = end

    def _feed(self, engine: Engine, rows: list[_Row], num_logits: int) -> NDArray[Any]:
        tokens = np.array([[row.token for row in rows]], dtype=np.int64)
        logits: NDArray[Any] = engine.forward(tokens, num_logits)[0].copy()
        self.passes += 1
        self._real.extend(rows)
        return logits


class ReplayEngine:
    """An engine over a `ReplayCache`; see `specdec.engines.engine` for the contract."""

    def __init__(self, engine: Engine, cache: ReplayCache) -> None:
        """Stand before `engine`, whose KV cache `cache` follows (also that of a sharer)."""
        self._engine = engine
        self._cache = cache

    @property
    def info(self) -> EngineInfo:
        """That of the engine."""
        return self._engine.info

    @property
    def length(self) -> int:
        """Noted rows."""
        return self._cache.length

    @property
    def prefill_chunk(self) -> int:
        """That of the engine."""
        return chunk_size(self._engine)

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> NDArray[Any]:
        """See `Engine.forward`."""
        check_forward(self.info, self.length, token_ids, num_logits)
        return self._cache.append(self._engine, token_ids[0].tolist(), num_logits)[None]

    def truncate(self, length: int) -> None:
        """See `Engine.truncate`."""
        self._cache.truncate(length)

    def close(self) -> None:
        """Does nothing: the caller that loaded the engine closes it."""
