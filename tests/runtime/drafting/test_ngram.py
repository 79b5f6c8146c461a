"""Look-up drafting and the hybrid: what is proposed, and when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from specdec.runtime import SamplingParams, SpeculativeDecoder
from specdec.runtime.drafting.drafter import DraftContext, Match
from specdec.runtime.drafting.ngram import NgramDrafter
from specdec.runtime.meter import Meter
from specdec.runtime.sampling.penalties import TokenHistory
from specdec.runtime.sampling.processing import LogitsProcessor
from specdec.runtime.sampling.randomness import CounterRandom
from tests.support.decoders import cycle_table
from tests.support.table_engine import TableEngine


def context(ends: frozenset[int] = frozenset()) -> DraftContext:
    params = SamplingParams()
    history = TokenHistory(params, 10)
    process = LogitsProcessor(params, history, vocab_size=10, engine_name="draft")
    return DraftContext(process, CounterRandom(1), ends, 10, Meter())


def proposed(text: list[int], count: int = 4, **kwargs) -> list[int]:
    drafter = NgramDrafter(**kwargs)
    drafter.prefill(text, context())
    offers = drafter.offers(text)
    return list(drafter.propose(text, offers[0], count, context()).tokens) if offers else []


def test_the_longest_and_most_recent_match_is_continued() -> None:
    assert proposed([1, 2, 3, 4, 5, 1, 2]) == [3, 4, 5, 1]
    assert proposed([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], 1) == [4]
    assert proposed([7, 1, 2, 3, 9, 8, 1, 2, 4, 9, 7, 1, 2], 2) == [3, 9]
    assert proposed([1, 2, 3, 4]) == []
    assert proposed([1]) == []
    assert proposed([1, 2, 1]) == []
    assert proposed([1, 2, 1], min_match=1) == [2, 1, 2, 1]


def test_a_repetition_is_continued_past_the_end_of_the_text() -> None:
    assert proposed([5, 6, 5, 6, 5, 6], 5) == [5, 6, 5, 6, 5]
    assert proposed([0, 0, 0], 3) == [0, 0, 0]


def test_an_end_token_is_the_last_one_proposed() -> None:
    drafter = NgramDrafter()
    text = [1, 2, 3, 4, 5, 1, 2]
    draft = drafter.propose(text, drafter.offers(text)[0], 4, context(ends=frozenset([4])))
    assert draft.tokens == (3, 4)
    assert [distribution.prob(3) for distribution in draft.draft_probs] == [1.0, 0.0]


def test_the_index_grows_with_the_text() -> None:
    grown = NgramDrafter()
    text: list[int] = []
    for token in [1, 2, 3, 1, 2, 4, 1, 2, 3, 5, 1, 2, 3]:
        text.append(token)
        fresh = NgramDrafter()
        assert grown.find(text) == fresh.find(text)
    grown.prefill([9, 9], context())
    assert grown.find([9, 9]) is None


def test_a_round_looks_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    real = NgramDrafter.find

    def counted(self: NgramDrafter, committed: Sequence[int]) -> Match | None:
        found.append(len(committed))
        return real(self, committed)

    monkeypatch.setattr(NgramDrafter, "find", counted)
    target = TableEngine(cycle_table({0: 1, 1: 2, 2: 0}, 3))
    draft = TableEngine(cycle_table({0: 1, 1: 2, 2: 0}, 3), name="draft")
    decoder = SpeculativeDecoder(target, draft, drafter="hybrid")
    result = decoder.generate([0], SamplingParams(max_new_tokens=20, num_draft_tokens=2))
    assert result.stats.rounds >= 5
    assert len(found) == len(set(found))
    assert len(found) >= result.stats.rounds - 1


def test_a_match_is_counted_further_back_than_it_is_looked_up() -> None:
    text = [*range(10), *range(10)]
    match = NgramDrafter(max_match=3).find(text)
    assert match is not None
    assert (match.start, match.size) == (10, 10)


def test_look_ups_are_judged_by_the_output_whoever_drafted_it() -> None:
    drafter = NgramDrafter()
    prompt = [1, 2, 3, 4, 1, 2]
    drafter.prefill(prompt, context())
    before = drafter.acceptance.expected_tokens(1, 2)
    drafter.offers(prompt)
    assert drafter.acceptance.expected_tokens(1, 2) == before  # the prompt is no evidence
    drafter.offers([*prompt, 3])
    right = drafter.acceptance.expected_tokens(1, 2)
    drafter.prefill(prompt, context())
    drafter.offers([*prompt, 4])
    wrong = drafter.acceptance.expected_tokens(1, 2)
    assert wrong < before < right


@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
def test_hybrid_uses_the_model_only_without_a_match(shares_cache: bool) -> None:
    table = cycle_table({0: 1, 1: 2, 2: 3, 3: 4, 4: 5, 5: 0}, 6)
    target = TableEngine(table)
    draft = TableEngine(table, name="draft", share_cache_with=target if shares_cache else None)
    decoder = SpeculativeDecoder(target, draft, shares_cache=shares_cache, drafter="hybrid")
    result = decoder.generate([0], SamplingParams(max_new_tokens=30, num_draft_tokens=3))
    assert result.token_ids == tuple(i % 6 for i in range(1, 31))
    assert result.stats.acceptance_rate == 1.0
    # The first two rounds know nothing repeated; from the third on the text answers.
    assert sum(num_logits for _, _, num_logits in draft.calls) == 6
