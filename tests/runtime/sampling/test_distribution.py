"""`Distribution`: draws, residuals in every combination of forms, and untouched inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.runtime.sampling.distribution import Distribution, draw_index

SIZE = 6
LAST = np.nextafter(1.0, 0.0)


def sparse(ids: list[int], probs: list[float]) -> Distribution:
    return Distribution(SIZE, np.array(ids, dtype=np.int64), np.array(probs, dtype=np.float64))


DENSE_P = Distribution.dense(np.array([0.1, 0.2, 0.3, 0.0, 0.4, 0.0]))
DENSE_Q = Distribution.dense(np.array([0.3, 0.1, 0.1, 0.4, 0.1, 0.0]))
SPARSE_P = sparse([0, 2, 5], [0.2, 0.5, 0.3])
SPARSE_Q = sparse([1, 2, 4], [0.25, 0.25, 0.5])
HOT = Distribution.one_hot(2, SIZE, np.float64)
ALL = [DENSE_P, DENSE_Q, SPARSE_P, SPARSE_Q, HOT]


def to_dense(distribution: Distribution) -> np.ndarray:
    return np.array([distribution.prob(token) for token in range(SIZE)])


@pytest.mark.parametrize("scale", [1.0, 0.6])
@pytest.mark.parametrize("q", ALL)
@pytest.mark.parametrize("p", ALL)
def test_residual_equals_the_formula(p: Distribution, q: Distribution, scale: float) -> None:
    before = [distribution.probs.copy() for distribution in (p, q)]
    expected = np.maximum(scale * to_dense(p) - to_dense(q), 0.0)
    assert p.residual_mass(q, scale) == pytest.approx(expected.sum(), abs=1e-15)
    left = p.residual(q, scale)
    if expected.sum() > 0:
        np.testing.assert_allclose(to_dense(left), expected / expected.sum(), atol=1e-15)
    else:
        assert left is p
    for distribution, probs in zip((p, q), before, strict=True):
        np.testing.assert_array_equal(distribution.probs, probs)


def test_an_empty_residual_is_the_target() -> None:
    assert DENSE_P.residual(DENSE_P) is DENSE_P
    assert SPARSE_P.residual_mass(SPARSE_P) == 0.0


def test_prob_and_greedy() -> None:
    assert to_dense(SPARSE_P).tolist() == [0.2, 0.0, 0.5, 0.0, 0.0, 0.3]
    assert SPARSE_P.prob(5) == 0.3
    assert Distribution.dense(np.array([0.2, 0.4, 0.4])).greedy() == 1
    assert sparse([1, 3], [0.5, 0.5]).greedy() == 1
    assert HOT.is_one_hot
    assert HOT.greedy() == 2
    assert HOT.total() == 1.0


def test_draw_is_the_inverse_cdf() -> None:
    assert [DENSE_P.draw(u) for u in (0.0, 0.099, 0.1, 0.29, 0.31, 0.61, LAST)] == [
        0, 0, 1, 1, 2, 4, 4,
    ]  # fmt: skip
    assert [SPARSE_P.draw(u) for u in (0.0, 0.19, 0.21, 0.71, LAST)] == [0, 0, 2, 5, 5]
    assert HOT.draw(0.3) == 2


@pytest.mark.parametrize("size", [50, 512, 513, 1000, 5000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_long_rows_draw_like_short_ones(size: int, dtype: type) -> None:
    rng = np.random.default_rng(size)
    weights = rng.exponential(size=size).astype(dtype)
    weights[rng.random(size) < 0.5] = 0.0
    weights[[0, -3, -2, -1]] = 0.0
    edges = np.cumsum(weights, dtype=np.float64)
    for u in [0.0, LAST, *rng.random(200)]:
        index = draw_index(weights, u)
        assert weights[index] > 0.0
        low = edges[index] - weights[index]
        assert low - 1e-9 * edges[-1] <= u * edges[-1] <= edges[index] + 1e-9 * edges[-1]


@given(
    st.lists(st.sampled_from([0.0, 1e-300, 1e-30, 0.1, 0.5, 1.0]), min_size=1, max_size=700),
    st.sampled_from([0.0, 0.5, LAST]),
)
def test_zero_weight_is_never_drawn(weights: list[float], u: float) -> None:
    array = np.array(weights)
    if array.sum() > 0:
        assert array[draw_index(array, u)] > 0.0
