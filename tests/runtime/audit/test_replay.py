"""Engines that remember their logits are, to the loop, the engines themselves."""

from __future__ import annotations

import random

import numpy as np
import pytest

from specdec.runtime.audit import replay
from specdec.runtime.audit.replay import ReplayCache, ReplayEngine
from tests.support.table_engine import TableEngine, nearby_table, random_table


def engines(shares_cache: bool) -> list[TableEngine]:
    table = random_table(1, 4, order=3)
    target = TableEngine(table, max_length=30, prefill_chunk=5)
    shared = target if shares_cache else None
    draft = nearby_table(table, 2)
    return [target, TableEngine(draft, name="draft", max_length=30, share_cache_with=shared)]


@pytest.mark.parametrize("memory", [1 << 20, 64, 0], ids=["ample", "little", "none"])
@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
def test_random_calls_get_the_same_logits(
    shares_cache: bool, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_MEMORY_BYTES", memory)
    plain, under = engines(shares_cache), engines(shares_cache)
    cache = ReplayCache(under[0])
    caches = [cache, cache if shares_cache else ReplayCache(under[1])]
    replayed = [ReplayEngine(engine, own) for engine, own in zip(under, caches, strict=True)]
    choose = random.Random(3)
    for _ in range(2000):
        which = choose.randrange(2)
        engine, twin = plain[which], replayed[which]
        assert twin.length == engine.length
        rows = choose.choice([1, 1, 2, 3])
        if engine.length + rows > 12 or choose.random() < 0.3:
            length = choose.randint(0, engine.length)
            engine.truncate(length)
            twin.truncate(length)
            continue
        tokens = np.array([[choose.randrange(2) for _ in range(rows)]])
        wanted = choose.randint(0, rows)
        expected = engine.forward(tokens, wanted)
        np.testing.assert_array_equal(twin.forward(tokens, wanted), expected)
    if memory > 64:
        assert sum(c.replays for c in set(caches)) > 100


def test_rows_of_another_model_are_other_rows() -> None:
    """On a shared cache the draft's keys are not the target's: what they lead to is not shared."""
    target, draft = engines(shares_cache=True)
    cache = ReplayCache(target)
    one, other = ReplayEngine(target, cache), ReplayEngine(draft, cache)
    for writer in (one, other):
        writer.forward(np.array([[1, 2]]), 0)
        one.forward(np.array([[3]]), 1)
        assert (target if writer is one else draft).calls[0][1] == (1, 2)
        one.truncate(0)
    assert cache.replays == 0


def test_limits_are_those_of_the_engine() -> None:
    target, _ = engines(shares_cache=False)
    twin = ReplayEngine(target, ReplayCache(target))
    with pytest.raises(ValueError, match=r"allowed is 0 \.\. 0"):
        twin.truncate(1)
    with pytest.raises(ValueError, match="token id 9"):
        twin.forward(np.array([[9]]), 1)
    assert twin.info is target.info
    assert twin.prefill_chunk == 5
