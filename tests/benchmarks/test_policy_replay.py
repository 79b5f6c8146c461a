"""The virtual clock: hand-made texts with costs one can add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from policies.replay import BOTH, Clock, play
from policies.trace import LONGEST, Case, Trace

from specdec.runtime.drafting.draft_length import FixedLength
from specdec.runtime.drafting.drafter import LOOKUP, MODEL

KEY = (0, 0.0)


def trace() -> Trace:
    """20 tokens of which the draft gets every fourth wrong; d = 2, T(M) = 10 + M."""
    text = list(range(20))
    kept = np.array([[(p + i) % 4 != 3 for i in range(LONGEST)] for p in range(20)], np.float32)
    case = Case("chat", "en", 0, 0.0, [90, 91], text, kept)
    verify = {m: [10.0 + m] * 3 for m in range(1, LONGEST + 2)}
    return Trace([case], {KEY: [2.0] * 3}, {KEY: verify}, {KEY: 10.0}, {})


@pytest.mark.parametrize(
    ("k", "seconds"),
    [(0, 20 * 11.0), (3, 5 * (6.0 + 14.0)), (7, 4 * (14.0 + 18.0) + (6.0 + 14.0))],
)
def test_seconds_are_those_of_the_rounds(k: int, seconds: float) -> None:
    recorded = trace()
    clock = Clock(recorded, 0.0, seed=0)
    spent = play(recorded.cases[0], lambda *_: FixedLength(k), clock, (MODEL,), 0)
    assert spent == pytest.approx(seconds)


def test_look_ups_are_compared_with_the_text() -> None:
    recorded = trace()
    case = Case("chat", "en", 0, 0.0, [1, 2, 3, 4, 1, 2], [3, 4, 1, 2, 3], recorded.cases[0].kept)
    clock = Clock(recorded, 0.0, seed=0)
    assert play(case, lambda *_: FixedLength(4), clock, (LOOKUP,), 0) == pytest.approx(15.0)


def test_a_trace_is_read_back(tmp_path: Path) -> None:
    recorded = trace()
    recorded.save(tmp_path / "trace.npz")
    again = Trace.load(tmp_path / "trace.npz")
    assert (again.draft, again.verify, again.lengths) == (
        recorded.draft, recorded.verify, recorded.lengths,
    )  # fmt: skip
    assert again.cases[0].text == recorded.cases[0].text
    assert (again.cases[0].kept == recorded.cases[0].kept).all()
    clock = Clock(again, 0.0, seed=0)
    fixed = FixedLength(3)
    assert play(again.cases[0], lambda *_: fixed, clock, BOTH, 0) == pytest.approx(100.0)
