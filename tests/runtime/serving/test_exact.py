"""A request among others has the law, and with a seed the text, that it has alone."""

from __future__ import annotations

import math
import random
import threading

import numpy as np
import pytest

from specdec.engines.slots import EngineSlots
from specdec.runtime import SamplingParams
from specdec.runtime.sampling.randomness import CounterRandom
from specdec.runtime.serving import BatchDecoder
from tests.support.decoders import pair
from tests.support.enumeration import (
    Branching,
    chain_distribution,
    exact_distribution,
    largest_error,
)
from tests.support.serving import batch_of
from tests.support.table_engine import TableEngine, nearby_table, random_table

ENUMERATED = 77
"""Seed of the request whose random choices are enumerated."""
PROMPT = [1, 0, 2, 1]


class _Gate:
    """Lets a pass wait until all requests of a test are queued, so that they really mix."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def wait(self) -> None:
        assert self.open.wait(10)


class GatedEngine(TableEngine):
    gate: _Gate | None = None

    def forward(self, token_ids: np.ndarray, num_logits: int) -> np.ndarray:
        if self.gate is not None:
            self.gate.wait()
        return super().forward(token_ids, num_logits)


@pytest.mark.parametrize("verify", ["block", "token"])
@pytest.mark.parametrize("shares_cache", [False, True])
def test_the_law_beside_other_requests(verify: str, shares_cache: bool) -> None:
    """Exact enumeration of one request's choices while two others run beside it."""
    table = random_table(3, 3)
    gate = _Gate()
    targets = [GatedEngine(table, padding=1) for _ in range(3)]
    drafts = [
        TableEngine(
            nearby_table(table, 4),
            name="draft",
            padding=3,
            share_cache_with=target if shares_cache else None,
        )
        for target in targets
    ]
    for target in targets:
        target.gate = gate
    current: list[Branching] = []

    def make_random(params: SamplingParams) -> Branching | CounterRandom:
        return current[-1] if params.seed == ENUMERATED else CounterRandom(params.seed)

    params = SamplingParams(
        max_new_tokens=3,
        temperature=0.9,
        top_p=0.9,
        repetition_penalty=1.2,
        seed=ENUMERATED,
        num_draft_tokens=2,
        verify=verify,  # type: ignore[arg-type]
    )
    beside = [
        SamplingParams(max_new_tokens=5, temperature=1.1, seed=1, num_draft_tokens=3),
        SamplingParams(max_new_tokens=4, temperature=0.0, num_draft_tokens=1),
    ]
    mixed = 0
    with BatchDecoder(
        EngineSlots(targets),
        EngineSlots(drafts),
        shares_cache=shares_cache,
        drafter="model",
        make_random=make_random,
    ) as decoder:
        texts: set[tuple[tuple[int, ...], ...]] = set()

        def program(branching: Branching) -> tuple[int, ...]:
            nonlocal mixed
            current.append(branching)
            gate.open.clear()
            passes = decoder.counters.target_passes
            others = [decoder.submit([2, 1, 0], options) for options in beside]
            request = decoder.submit(PROMPT, params)
            gate.open.set()
            result = request.drain()
            texts.add(tuple(other.drain().token_ids for other in others))
            rounds = result.stats.rounds + 9
            mixed += decoder.counters.target_passes - passes < rounds + 5
            return result.token_ids

        law = exact_distribution(program)
    assert mixed > 0, "the requests never shared a pass"
    assert len(texts) == 1, "what is seeded or greedy depends on what runs beside it"
    expected = chain_distribution(targets[0].logits_after, PROMPT, params, frozenset())
    assert math.isclose(sum(law.values()), 1.0, abs_tol=1e-10)
    assert largest_error(law, expected) < 1e-12


def _random_params(rng: random.Random) -> SamplingParams:
    return SamplingParams(
        max_new_tokens=rng.randint(1, 12),
        temperature=rng.choice([0.0, 0.7, 1.3]),
        top_k=rng.choice([0, 3]),
        top_p=rng.choice([1.0, 0.9]),
        repetition_penalty=rng.choice([1.0, 1.3]),
        seed=rng.randrange(1000),
        stop_token_ids=rng.choice([(), (2,)]),
        num_draft_tokens=rng.choice(["auto", 0, 1, 4]),
        verify=rng.choice(["block", "token", "coupled"]),
        logprobs=rng.choice([None, 2]),
    )


@pytest.mark.parametrize("shares_cache", [False, True])
@pytest.mark.parametrize("drafter", ["auto", "model", "ngram", "none"])
def test_random_arrivals_give_the_texts_of_requests_alone(shares_cache: bool, drafter: str) -> None:
    """Seeded texts do not depend on arrival, slots, cancellations or prompts read in chunks."""
    rng = random.Random(f"{shares_cache} {drafter}")
    alone, _, _ = pair(shares_cache=shares_cache, drafter=drafter)
    decoder, targets, _ = batch_of(
        3, shares_cache=shares_cache, drafter=drafter, prefill_chunk=2, max_queue=100
    )
    requests = []
    with decoder:
        for _ in range(60):
            prompt = [rng.randrange(5) for _ in range(rng.randint(1, 20))]
            params = _random_params(rng)
            if params.num_draft_tokens not in (0, "auto") and drafter == "none":
                params = SamplingParams(max_new_tokens=5, seed=3, temperature=1.0)
            request = decoder.submit(prompt, params, priority=rng.randrange(3))
            requests.append((prompt, params, request))
            if rng.random() < 0.3:
                request.cancel()
        for prompt, params, request in requests:
            result = request.drain()
            wanted = alone.generate(prompt, params)
            if result.finish_reason == "cancelled":
                assert result.token_ids == wanted.token_ids[: len(result.token_ids)]
                continue
            assert result.token_ids == wanted.token_ids
            assert result.finish_reason == wanted.finish_reason
            assert result.logprobs == wanted.logprobs
        assert decoder.num_running == 0
        assert decoder.num_waiting == 0
        assert sum(decoder.counters.finished.values()) == 60
    assert all(target.closed for target in targets)
