"""The native engine: rows of several sequences, slots, truncation, and a shared cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specdec.engines.engine import Engine
from specdec.engines.errors import ContextOverflowError, EngineError
from specdec.engines.native.engine import NativeEngine
from specdec.engines.slots import SlotRows, SlottedEngine

pytest.importorskip("optimum.exporters.onnx", reason="the export is not installed")

from tests.export.tiny_models import VOCABULARY
from tests.support.graphs import CAPACITY, logits, trace_tiny
from tests.support.native import Pair, needs_library, write_pair

pytestmark = needs_library
TOLERANCE = 2e-6
"""Of the span of the logits."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("native")


@pytest.fixture(scope="module", params=["llama", "gpt2", "gemma2", "qwen3"])
def pair(request: pytest.FixtureRequest, folder: Path) -> Pair:
    """FP16: rotation by the node and by the graph, windows, soft caps, norms of queries."""
    home = folder / request.param
    home.mkdir()
    traced = trace_tiny(request.param, home)
    assert traced is not None
    return write_pair(traced, "fp16", home / "pair")


def tokens(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(2, VOCABULARY, count)


def alone(engine: Engine, token_ids: np.ndarray) -> np.ndarray:
    """Logits of every token, one pass of an own cache."""
    return logits(engine, token_ids[np.newaxis], len(token_ids))


def test_rows_of_several_sequences_are_those_of_each_alone(pair: Pair) -> None:
    slots, single = pair.native(num_slots=4), pair.native()
    assert isinstance(slots, SlottedEngine)
    texts = [tokens(60, seed) for seed in range(4)]
    expected = [alone(single, text) for text in texts]
    done = [0, 0, 0, 0]
    random = np.random.default_rng(9)
    while any(length < 60 for length in done):
        order = [int(s) for s in random.permutation(4)[: random.integers(1, 5)] if done[s] < 60]
        counts = {s: min(int(random.integers(1, 12)), 60 - done[s]) for s in order}
        if not order:
            continue
        rows = [
            SlotRows(s, texts[s][done[s] : done[s] + n], int(random.integers(0, n + 1)))
            for s, n in counts.items()
        ]
        found = slots.forward_rows(rows)
        for entry, scored in zip(rows, found, strict=True):
            done[entry.slot] += len(entry.token_ids)
            end = done[entry.slot]
            wanted = expected[entry.slot][end - entry.num_logits : end]
            assert scored.shape == wanted.shape
            limit = TOLERANCE * np.ptp(expected[entry.slot])
            assert np.abs(scored - wanted).max(initial=0.0) <= limit
        assert [slots.slot_length(s) for s in range(4)] == done


def test_a_slot_is_cut_without_touching_the_others(pair: Pair) -> None:
    slots, single = pair.native(num_slots=2), pair.native()
    first, second, other = tokens(30, 1), tokens(30, 2), tokens(12, 3)
    slots.forward_rows([SlotRows(0, first, 0), SlotRows(1, second, 0)])
    slots.truncate_slot(0, 10)
    cut = np.concatenate([first[:10], other])
    got = slots.forward_rows([SlotRows(1, other, 12), SlotRows(0, other, 12)])
    for scored, text in zip(got, (np.concatenate([second, other]), cut), strict=True):
        expected = alone(single, text)[-12:]
        assert np.abs(scored - expected).max() <= TOLERANCE * np.ptp(expected)
    with pytest.raises(ValueError, match=r"cannot truncate the target engine to 23; .* 0 \.\. 22"):
        slots.truncate_slot(0, 23)


def test_the_engine_of_one_sequence_is_the_first_slot(pair: Pair) -> None:
    slots, single = pair.native(num_slots=3), pair.native()
    text = tokens(20, 5)
    slots.forward_rows([SlotRows(1, tokens(7, 6), 0)])
    assert np.array_equal(alone(slots, text), alone(single, text))
    assert [slots.slot_length(s) for s in range(3)] == [20, 7, 0]
    assert slots.length == 20
    slots.truncate(4)
    assert slots.slot_length(0) == 4


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([], ValueError, "a pass without rows"),
        ([(0, 3, 1), (0, 2, 1)], ValueError, "a slot is named twice"),
        ([(2, 3, 1)], ValueError, r"slot is 2; allowed is 0 \.\. 1"),
        ([(0, 3, 4)], ValueError, "num_logits is 4"),
        ([(0, 3, 1), (1, CAPACITY + 1, 1)], ContextOverflowError, "do not fit"),
    ],
)
def test_a_refused_pass_changes_no_length(
    pair: Pair, rows: list[tuple[int, int, int]], error: type[Exception], message: str
) -> None:
    slots = pair.native(num_slots=2)
    slots.forward_rows([SlotRows(1, tokens(5, 0), 0)])
    with pytest.raises(error, match=message):
        slots.forward_rows([SlotRows(s, tokens(n, 1), scored) for s, n, scored in rows])
    assert [slots.slot_length(s) for s in range(2)] == [0, 5]


def test_a_draft_shares_the_slots_of_its_target(pair: Pair) -> None:
    target = pair.native(num_slots=2)
    draft = pair.native(num_slots=2, share=target)
    text = tokens(15, 8)
    target.forward_rows([SlotRows(1, text[:9], 0)])
    assert draft.slot_length(1) == 9
    (scored,) = draft.forward_rows([SlotRows(1, text[9:], 6)])
    expected = alone(pair.native(), text)[-6:]
    assert np.abs(scored - expected).max() <= TOLERANCE * np.ptp(expected)
    assert target.slot_length(1) == 15


def test_a_standard_draft_shares_the_cache_of_one_sequence_only(pair: Pair) -> None:
    target = pair.native()
    draft = pair.standard(share=target)
    text = tokens(15, 8)
    target.forward(text[np.newaxis, :9], 0)
    found = draft.forward(text[np.newaxis, 9:], 6)[0]
    expected = alone(pair.native(), text)[-6:]
    assert np.abs(found - expected).max() <= 5 * TOLERANCE * np.ptp(expected)
    with pytest.raises(EngineError, match="1 slots and cannot share a cache of 2"):
        pair.standard(share=pair.native(num_slots=2))


def test_a_pass_does_not_depend_on_threads(pair: Pair) -> None:
    text = tokens(33, 4)
    assert np.array_equal(alone(pair.native(threads=2), text), alone(pair.native(), text))


def test_a_closed_engine_says_so(pair: Pair) -> None:
    engine: NativeEngine = pair.native(num_slots=2)
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="is closed"):
        engine.forward_rows([SlotRows(0, tokens(3, 0), 1)])
