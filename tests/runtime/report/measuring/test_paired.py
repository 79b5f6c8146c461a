"""The signed-rank test against its definition: every assignment of signs, counted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from specdec.runtime.report.measuring.paired import signed_rank_p


def enumerated(differences: list[float]) -> float:
    values = np.array([d for d in differences if d != 0])
    sizes = np.abs(values)
    ranks = np.array([(sizes < s).sum() + ((sizes == s).sum() + 1) / 2 for s in sizes])
    observed = abs(ranks[values > 0].sum() - ranks.sum() / 2)
    sums = [
        sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        for signs in itertools.product((0, 1), repeat=len(ranks))
    ]
    return float(np.mean([abs(s - ranks.sum() / 2) >= observed - 1e-9 for s in sums]))


@pytest.mark.parametrize(
    "differences",
    [
        [1.0],
        [1.0, -2.0, 3.0],
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        [1.0, 1.0, -1.0, 2.0, 0.0, 2.0, -3.0],
        [0.3, -0.1, 0.25, 0.7, -0.02, 0.6, 0.11, 0.4],
        [0.0, 0.0, 5.0],
    ],
)
def test_equals_the_count_over_all_signs(differences: list[float]) -> None:
    assert signed_rank_p(differences) == pytest.approx(enumerated(differences), abs=1e-12)
    mirrored = [-d for d in differences]
    assert signed_rank_p(mirrored) == pytest.approx(signed_rank_p(differences), abs=1e-12)


def test_known_values() -> None:
    assert signed_rank_p([0.0, 0.0]) == 1.0
    assert signed_rank_p([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == 2 / 2**6
    assert signed_rank_p(list(range(1, 101))) == pytest.approx(2 / 2**100, rel=1e-9)
