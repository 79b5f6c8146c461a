"""Base of the engines whose KV cache is one set of buffers, written in place."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from specdec.engines.engine import EngineInfo, check_truncate

__all__ = ["PAST", "PRESENT", "InPlaceEngine"]

PAST = "past_key_values."
"""Prefix of the cache inputs; "<layer>.key" or "<layer>.value" follows."""
PRESENT = "present."
"""Prefix of the cache outputs."""


class _Cache(Protocol):
    length: int


CacheT = TypeVar("CacheT", bound=_Cache)


class InPlaceEngine(Generic[CacheT]):
    """Static facts, and a cache of which only the length changes on truncation."""

    def __init__(self, info: EngineInfo, cache: CacheT, prefill_chunk: int) -> None:
        self._info = info
        self._cache = cache
        self._prefill_chunk = prefill_chunk

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._info.name!r}, {self._info.max_length} of context>"

    @property
    def info(self) -> EngineInfo:
        """Static facts about the engine."""
        return self._info

    @property
    def cache(self) -> CacheT:
        """The KV cache; an engine of the same geometry may use it too."""
        return self._cache

    @property
    def length(self) -> int:
        """Tokens whose keys and values are in the cache; engines on one cache have one length."""
        return self._cache.length

    @property
    def prefill_chunk(self) -> int:
        """Rows per pass that suit a long prompt."""
        return self._prefill_chunk

    def truncate(self, length: int) -> None:
        """See `Engine.truncate`: the buffers are untouched, only the length changes."""
        check_truncate(self._info, self._cache.length, length)
        self._cache.length = length
