"""Decoders for many requests over table engines."""

from __future__ import annotations

from typing import Any

from specdec.engines.slots import EngineSlots
from specdec.runtime.serving import BatchDecoder
from tests.support.table_engine import TableEngine, nearby_table, random_table


def batch_of(
    num_slots: int,
    vocab_size: int = 5,
    *,
    seed: int = 0,
    shares_cache: bool = False,
    noise: float = 0.7,
    max_length: int = 64,
    **options: Any,
) -> tuple[BatchDecoder, list[TableEngine], list[TableEngine]]:
    """(decoder, a target for each slot, a draft for each slot): the models of `decoders.pair`."""
    table = random_table(seed, vocab_size)
    targets = [TableEngine(table, max_length=max_length, padding=2) for _ in range(num_slots)]
    drafts = [
        TableEngine(
            nearby_table(table, seed + 1, noise),
            name="draft",
            max_length=max_length,
            padding=1,
            share_cache_with=target if shares_cache else None,
        )
        for target in targets
    ]
    decoder = BatchDecoder(
        EngineSlots(targets), EngineSlots(drafts), shares_cache=shares_cache, **options
    )
    return decoder, targets, drafts
