"""`reuse_prefix`: what the cache shares with a new prompt is kept, and changes no token."""

from __future__ import annotations

import pytest

from specdec.runtime import SamplingParams
from tests.support.decoders import pair

PARAMS = SamplingParams(max_new_tokens=6, temperature=1.0, num_draft_tokens=3, seed=3)
SYSTEM = [1, 4, 2, 0, 3, 3, 1]


@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("drafter", ["model", "ngram", "hybrid"])
def test_a_shared_prefix_is_not_fed_again(drafter: str, shares_cache: bool) -> None:
    decoder, target, draft = pair(shares_cache=shares_cache, drafter=drafter)
    fresh, _, _ = pair(shares_cache=shares_cache, drafter=drafter)
    decoder.generate([*SYSTEM, 0, 0], PARAMS)
    for question in ([2, 2, 1], [2, 4], []):
        prompt = [*SYSTEM, *question]
        target.calls.clear()
        result = decoder.generate(prompt, PARAMS, reuse_prefix=True)
        assert result.token_ids == fresh.generate(prompt, PARAMS).token_ids
        assert min(length for length, _, _ in target.calls) >= len(prompt) - len(question) - 1
        committed = [*prompt, *result.token_ids]
        assert target.cached == committed[: target.length]
        assert draft.cached == committed[: draft.length]


def test_without_it_a_generation_starts_from_an_empty_cache() -> None:
    decoder, target, _ = pair()
    decoder.generate(SYSTEM, PARAMS)
    target.calls.clear()
    decoder.generate(SYSTEM, PARAMS)
    assert target.calls[0][0] == 0


def test_nothing_in_common_starts_from_an_empty_cache() -> None:
    decoder, target, _ = pair()
    decoder.generate([1, 2, 3], PARAMS)
    target.calls.clear()
    decoder.generate([4, 2, 3], PARAMS, reuse_prefix=True)
    assert target.calls[0][0] == 0
