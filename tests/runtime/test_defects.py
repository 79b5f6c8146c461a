"""docs/defects.md: every row names tests that exist; the rows without a better home."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from specdec.runtime import SamplingParams, SpeculativeDecoder
from tests.support.enumeration import (
    Branching,
    chain_distribution,
    exact_distribution,
    largest_error,
)
from tests.support.table_engine import TableEngine, nearby_table, random_table

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| (\d+) \|.*\| (.*) \|$", (ROOT / "docs/defects.md").read_text(encoding="utf-8"), re.M
)


def test_every_row_is_there() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, 25))
    assert [number for number, proofs in ROWS if "`" not in proofs] == []


@pytest.mark.parametrize(("number", "proofs"), ROWS, ids=[f"row {number}" for number, _ in ROWS])
def test_the_tests_it_names_exist(number: str, proofs: str) -> None:
    for path, name in re.findall(r"`([\w/]+\.py)::(\w+)`", proofs):
        source = (ROOT / "tests" / path).read_text(encoding="utf-8")
        assert re.search(rf"^ *def {name}\(", source, re.M), f"row {number}: {path}::{name}"


@pytest.mark.parametrize("verify", ["token", "block"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_half_precision_is_cast_once(dtype: type, verify: str) -> None:
    """Row 2: coarse logits, where drawing in half precision would be off by 1e-3."""
    table = random_table(7, 3, dtype=dtype)
    target = TableEngine(table, padding=1)
    draft = TableEngine(nearby_table(table, 8), name="draft")
    params = SamplingParams(
        max_new_tokens=3, temperature=0.9, top_p=0.95, num_draft_tokens=2, verify=verify
    )
    current: list[Branching] = []
    decoder = SpeculativeDecoder(target, draft, make_random=lambda _: current[-1])

    def program(branching: Branching) -> tuple[int, ...]:
        current.append(branching)
        return decoder.generate([1, 0], params).token_ids

    expected = chain_distribution(target.logits_after, [1, 0], params, frozenset())
    assert largest_error(exact_distribution(program), expected) < 1e-6
