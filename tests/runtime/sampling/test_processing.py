"""W(logits | prefix): order of the options, rules for ties, errors; compared with a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.runtime import (
    InvalidParameterError,
    NoTokenLeftError,
    NumericalError,
    SamplingParams,
)
from specdec.runtime.sampling.distribution import Distribution
from specdec.runtime.sampling.penalties import TokenHistory
from specdec.runtime.sampling.processing import LogitsProcessor
from specdec.runtime.sampling.truncation import nucleus_ids, top_k_ids
from tests.support.enumeration import naive_probs

SIZE = 8
ENDS = frozenset([6, 7])


def process(
    row: np.ndarray,
    prompt: list[int],
    output: list[int],
    drafted: list[int],
    params: SamplingParams,
) -> Distribution:
    history = TokenHistory(params, SIZE, ENDS, prompt)
    for token in output:
        history.commit([token])
    processor = LogitsProcessor(params, history, vocab_size=SIZE, engine_name="target")
    return processor(row, drafted, len(prompt) + len(output) + len(drafted))


def to_dense(distribution: Distribution) -> np.ndarray:
    return np.array([distribution.prob(token) for token in range(distribution.vocab_size)])


def options() -> st.SearchStrategy[SamplingParams]:
    return st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        top_k=st.integers(0, SIZE + 1),
        top_p=st.sampled_from([0.2, 0.61, 0.9, 1.0]),
        min_p=st.sampled_from([0.0, 0.1, 0.7]),
        repetition_penalty=st.sampled_from([0.7, 1.0, 1.5]),
        presence_penalty=st.sampled_from([-0.5, 0.0, 0.8]),
        frequency_penalty=st.sampled_from([-0.3, 0.0, 0.4]),
        no_repeat_ngram_size=st.sampled_from([0, 0, 1, 2, 3]),
        min_new_tokens=st.integers(0, 5),
        logit_bias=st.sampled_from([None, {0: 2.0}, {3: -np.inf, 5: -1.0}]),
    )


tokens = st.lists(st.integers(0, 5), max_size=6)
prompts = st.lists(st.integers(0, 5), min_size=1)


@settings(max_examples=300, deadline=None)
@given(
    options(), st.integers(0, 2**32 - 1), st.lists(st.integers(0, 5), min_size=1), tokens, tokens
)
def test_equals_the_plain_loop(
    params: SamplingParams, seed: int, prompt: list[int], output: list[int], drafted: list[int]
) -> None:
    row = np.round(np.random.default_rng(seed).normal(size=SIZE + 2) * 2, 1)
    kept = row.copy()
    try:
        distribution = process(row, prompt, output, drafted, params)
    except NoTokenLeftError:
        assert params.no_repeat_ngram_size > 0
        return
    expected = naive_probs(row[:SIZE], prompt, output + drafted, params, ENDS)
    np.testing.assert_allclose(to_dense(distribution), expected, atol=1e-12)
    np.testing.assert_array_equal(row, kept)


def test_padding_never_wins_and_dtype_is_kept() -> None:
    row = np.array([0.0, 1.0, 0, 0, 0, 0, 0, 0, 99.0], dtype=np.float32)
    for temperature in (0.0, 1.0):
        distribution = process(row, [1], [], [], SamplingParams(temperature=temperature))
        assert distribution.vocab_size == SIZE
        assert distribution.greedy() == 1
        assert distribution.probs.dtype == np.float32
    half = process(row.astype(np.float16), [1], [], [], SamplingParams(temperature=1.0))
    assert half.probs.dtype == np.float32


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bad_logits_name_engine_and_position(bad: float, temperature: float) -> None:
    row = np.zeros(SIZE)
    row[3] = bad
    with pytest.raises(NumericalError, match=r"the target engine .* position 4"):
        process(row, [1, 1], [1], [1], SamplingParams(temperature=temperature))


def test_minus_infinity_is_legal_unless_it_is_everywhere() -> None:
    row = np.full(SIZE, -np.inf)
    with pytest.raises(NumericalError):
        process(row, [1], [], [], SamplingParams(temperature=1.0))
    row[2] = 0.0
    assert process(row, [1], [], [], SamplingParams(temperature=1.0)).prob(2) == 1.0


def test_no_token_left_names_the_options() -> None:
    params = SamplingParams(
        logit_bias=dict.fromkeys(range(6), -np.inf), min_new_tokens=3, max_new_tokens=4
    )
    with pytest.raises(NoTokenLeftError, match="logit_bias and min_new_tokens"):
        process(np.zeros(SIZE), [1], [], [], params)


def test_penalties_that_overflow_are_an_error_not_a_token() -> None:
    """Row 22 of docs/defects.md: +inf or NaN after the options must not choose token 0."""
    high = np.full(SIZE, 1e37, dtype=np.float32)
    penalty = SamplingParams(temperature=1.0, repetition_penalty=1e-4)
    with pytest.raises(NumericalError, match="a repetition_penalty closer to 1"):
        process(high, [1], [], [], penalty)
    lowest = np.full(SIZE, np.finfo(np.float32).min)
    lowest[2] = 0.0
    distribution = process(
        lowest, [1], [], [], SamplingParams(temperature=1.0, repetition_penalty=2.0)
    )
    assert distribution.prob(2) == 1.0
    everything = SamplingParams(repetition_penalty=2.0)
    with pytest.raises(NoTokenLeftError, match="repetition_penalty"):
        process(lowest[[0] * SIZE], list(range(SIZE)), [], [], everything)


def test_ids_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="logit_bias holds token id 8"):
        process(np.zeros(SIZE), [1], [], [], SamplingParams(logit_bias={8: 1.0}))


def test_tiny_and_huge_temperatures_give_no_nan() -> None:
    row = np.array([5.0, 4.0, -np.inf, 0, 0, 0, 0, 0], dtype=np.float32) * 1e3
    cold = process(row, [1], [], [], SamplingParams(temperature=1e-4))
    assert to_dense(cold)[0] == 1.0
    hot = process(row, [1], [], [], SamplingParams(temperature=1e4))
    assert np.isfinite(to_dense(hot)).all()
    assert hot.prob(2) == 0.0


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4000), st.integers(1, 200), st.integers(0, 99), st.booleans())
def test_top_k_breaks_ties_by_lowest_id(size: int, k: int, seed: int, coarse: bool) -> None:
    values = np.random.default_rng(seed).normal(size=size)
    if coarse:
        values = np.round(values)
    expected = sorted(sorted(range(size), key=lambda t: (-values[t], t))[:k])
    assert top_k_ids(values, k).tolist() == expected


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4000), st.floats(0.01, 1.0), st.integers(0, 99), st.booleans())
def test_nucleus_is_the_smallest_set(size: int, top_p: float, seed: int, coarse: bool) -> None:
    weights = np.random.default_rng(seed).exponential(size=size)
    if coarse:
        weights = np.ceil(weights)
    ids = nucleus_ids(weights, top_p)
    ranked = sorted(range(size), key=lambda t: (-weights[t], t))
    assert ids.tolist() == sorted(ranked[: len(ids)])
    wanted = top_p * weights.sum()
    assert weights[ids].sum() >= wanted * (1 - 1e-12)
    assert weights[ranked[: len(ids) - 1]].sum() < wanted * (1 + 1e-12)
