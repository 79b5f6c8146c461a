"""Reduced rows give the very distribution of the full row, or ask for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from specdec.engines import Reduction
from specdec.runtime import SamplingParams
from specdec.runtime.sampling.penalties import TokenHistory
from specdec.runtime.sampling.processing import LogitsProcessor
from specdec.runtime.sampling.truncation import leading, surest_nucleus
from tests.support.reducing_engine import reduce_row

WIDE = 3000
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "top_k": {"temperature": 0.8, "top_k": 40},
    "top_k and top_p": {"temperature": 1.3, "top_k": 50, "top_p": 0.9},
    "top_k, top_p and min_p": {"temperature": 1.3, "top_k": 50, "top_p": 0.9, "min_p": 0.1},
    "top_p": {"temperature": 0.7, "top_p": 0.9},
    "wide top_p": {"temperature": 2.0, "top_p": 0.99},
    "top_p and min_p": {"temperature": 0.7, "top_p": 0.9, "min_p": 0.05},
    "min_p": {"temperature": 0.7, "min_p": 0.02},
}


def processor(vocab_size: int, **options: Any) -> LogitsProcessor:
    params = SamplingParams(**options)
    history = TokenHistory(params, vocab_size)
    return LogitsProcessor(params, history, vocab_size=vocab_size, engine_name="target")


def both(
    process: LogitsProcessor, row: NDArray[np.float32], error: float = 0.0
) -> tuple[bool, bool]:
    """(same distribution bit for bit, full row asked for) of a row and what a device made of it."""
    reduction = process.reduction
    assert reduction is not None
    asked: list[bool] = []

    def full() -> NDArray[np.float32]:
        asked.append(True)
        return row

    reduced = reduce_row(row, process._vocab_size, reduction, full, mass_error=error)
    want, got = process(row, (), 0), process(reduced, (), 0)
    if want.ids is None or got.ids is None:
        same = want.ids is got.ids and want.probs.tobytes() == got.probs.tobytes()
    else:
        same = want.ids.tolist() == got.ids.tolist() and want.probs.tobytes() == got.probs.tobytes()
    return same and want.probs.dtype == got.probs.dtype, bool(asked)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("spread", [0.5, 3.0, 9.0])
@pytest.mark.parametrize("error", [-5e-6, 0.0, 5e-6])
def test_the_same_distribution(name: str, spread: float, error: float) -> None:
    process = processor(WIDE, **OPTIONS[name])
    rng = np.random.default_rng(5)
    asked = 0
    for _ in range(50):
        row = (rng.normal(size=WIDE + 8) * spread).astype(np.float32)
        same, full = both(process, row, error)
        assert same
        asked += full
    if name in ("greedy", "top_k") or (spread == 9.0 and name != "wide top_p"):
        assert asked <= 2, "peaked rows are settled by their best tokens"


@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_distribution_with_many_ties(name: str) -> None:
    process = processor(WIDE, **OPTIONS[name])
    rng = np.random.default_rng(6)
    for _ in range(50):
        row = np.round(rng.normal(size=WIDE) * 4, 1).astype(np.float32)
        assert both(process, row)[0]


@settings(max_examples=300, deadline=None)
@given(
    values=st.lists(
        st.one_of(st.floats(-30, 30, width=32), st.sampled_from([0.0, 1.0, float("-inf")])),
        min_size=2,
        max_size=40,
    ),
    top_k=st.integers(0, 40),
    top_p=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1, 0.5]),
    temperature=st.sampled_from([0.05, 0.7, 1.0, 5.0]),
)
def test_short_rows(
    values: list[float], top_k: int, top_p: float, min_p: float, temperature: float
) -> None:
    row = np.array(values, np.float32)
    options = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "temperature": temperature}
    process = processor(len(values), **options)
    if process.reduction is not None and np.isfinite(row).any():
        assert both(process, row)[0]


def test_what_is_asked_of_a_row() -> None:
    assert processor(WIDE).reduction == Reduction(1)
    assert processor(WIDE, temperature=0.7, top_k=50).reduction == Reduction(51)
    assert processor(WIDE, temperature=0.7, top_p=0.9).reduction == Reduction(128, 0.7)
    assert processor(60, temperature=0.7, top_p=0.9).reduction == Reduction(60, 0.7)
    assert processor(WIDE, temperature=0.7, min_p=0.1).reduction == Reduction(128)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7},
        {"temperature": 0.7, "top_k": 256},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.5},
        {"no_repeat_ngram_size": 3},
        {"logit_bias": {3: 1.0}},
    ],
)
def test_what_takes_whole_rows(options: dict[str, Any]) -> None:
    assert processor(WIDE, **options).reduction is None


def test_leading_values() -> None:
    values = np.array([5.0, 4.0, 4.0, 3.0], np.float32)
    assert leading(values, 1, 9) == 1
    assert leading(values, 2, 9) is None
    assert leading(values, 3, 9) == 3
    assert leading(values, 4, 9) == 3
    assert leading(values, 4, 4) == 4
    assert leading(values[:3], 3, 9) == 1
    assert leading(np.ones(3, np.float32), 3, 9) is None


def test_a_nucleus_that_rounding_could_change_is_not_decided() -> None:
    weights = np.array([0.25, 0.5, 0.125, 0.0625], np.float32)
    assert surest_nucleus(weights, 1.0, 0.7) is not None
    assert surest_nucleus(weights, 1.0, 0.7).tolist() == [0, 1]  # type: ignore[union-attr]
    assert surest_nucleus(weights, 1.0, 0.75) is None
    assert surest_nucleus(weights, 1.0, 0.75 - 1e-4) is not None
    assert surest_nucleus(weights, 1.0, 0.99) is None
