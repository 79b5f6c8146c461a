"""The shapes that a generation on a GPU meets: few, fixed, and right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specdec.engines import Device, EngineEntry, load_package
from specdec.engines.onnxruntime.engine import OrtEngine
from specdec.engines.onnxruntime.widths import pieces, prompt_widths, shapes_to_warm, warm
from specdec.runtime import SamplingParams, SpeculativeDecoder
from tests.engines.packages import TARGET_FIELDS
from tests.engines.test_load import CAPACITY, VOCAB, root  # noqa: F401
from tests.support.other_memory import OtherMemory

CHUNK = 16
ENTRY = EngineEntry(**TARGET_FIELDS)


def test_widths_of_prompts() -> None:
    assert prompt_widths(256) == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert prompt_widths(48) == (1, 2, 4, 8, 16, 32, 48)
    assert prompt_widths(1) == (1,)


@pytest.mark.parametrize(
    ("rows", "room", "expected"),
    [
        (256, 9999, [(256, 256)]),
        (600, 9999, [(256, 256), (256, 256), (88, 128)]),
        (129, 256, [(129, 256)]),
        (129, 255, [(128, 128), (1, 1)]),
        (100, 100, [(64, 64), (32, 32), (4, 4)]),
        (3, 3, [(2, 2), (1, 1)]),
        (1, 1, [(1, 1)]),
    ],
)
def test_pieces(rows: int, room: int, expected: list[tuple[int, int]]) -> None:
    assert pieces(rows, room, 256) == expected


def test_all_pieces_fit_and_are_of_few_widths() -> None:
    for room in range(1, 80):
        for rows in range(1, room + 1):
            done = 0
            for tokens, width in pieces(rows, room, 32):
                assert 1 <= tokens <= width
                assert done + width <= room
                assert width in prompt_widths(32)
                done += tokens
            assert done == rows


def pair_on_a_device(package: Path) -> tuple[OrtEngine, OrtEngine]:
    """An engine on the CPU, and one over the same session that takes its memory for a device's."""
    plain = load_package(package, num_threads=1, load_draft=False).target
    assert isinstance(plain, OrtEngine)
    cache = plain.beside().cache
    cache.device = OtherMemory("cpu")
    return plain, OrtEngine(plain._session, plain.info, cache, CHUNK)


def test_padding_leaves_no_trace(root: Path) -> None:  # noqa: F811
    plain, tested = pair_on_a_device(root)
    ids = np.random.default_rng(0).integers(0, VOCAB, (1, CAPACITY))
    for length in (1, 5, 16, 23, CAPACITY - 6, CAPACITY - 5):
        for engine in (plain, tested):
            engine.truncate(0)
            engine.forward(ids[:, :length], 0)
            assert engine.length == length
        for start in range(length, min(length + 5, CAPACITY)):
            step = ids[:, start : start + 1]
            wanted, got = plain.forward(step, 1), tested.forward(step, 1)
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_generation_meets_few_shapes(root: Path) -> None:  # noqa: F811
    """Whatever the lengths of prompts, with drafts of up to K tokens."""
    _, tested = pair_on_a_device(root)
    longest = 4
    decoder = SpeculativeDecoder(tested, None)  # drafts are looked up in the text
    params = SamplingParams(max_new_tokens=12, num_draft_tokens=longest)
    for length in range(1, CAPACITY - 13, 3):
        decoder.generate([(7 * i) % 5 for i in range(length)], params)
    allowed = {(width, 1) for width in prompt_widths(CHUNK)}
    allowed |= {(rows, rows) for rows in range(1, longest + 2)}
    met = {(rows, scored) for rows, scored, _ in tested._passes}
    assert met <= allowed
    assert (longest + 1, longest + 1) in met, "drafts were verified"


class Timed:
    """An engine whose every pass takes a second, and the clock that shows it."""

    def __init__(self, max_length: int) -> None:
        self.info = replace(ENTRY.info("target", Device("cuda")), max_length=max_length)
        self.prefill_chunk = 8
        self.seconds, self.length = 0.0, 0
        self.met: list[tuple[int, int]] = []

    def forward(self, token_ids: np.ndarray, num_logits: int) -> np.ndarray:
        assert self.length == 0
        self.seconds += 1.0
        self.length = token_ids.shape[1]
        self.met.append((self.length, num_logits))
        return np.zeros((1, num_logits, VOCAB), np.float32)

    def truncate(self, length: int) -> None:
        self.length = length


def test_warming_is_bounded_and_leaves_the_cache_empty() -> None:
    engine = Timed(64)
    assert warm(engine, 2.5, lambda: engine.seconds) == 3
    assert engine.met == [(1, 1), (8, 0), (2, 2)]
    assert engine.length == 0
    every = Timed(64)
    assert warm(every, 1e9, lambda: every.seconds) == len(every.met) == 14
    assert every.met == shapes_to_warm(every.info, 8)


def test_shapes_that_do_not_fit_are_not_warmed() -> None:
    assert shapes_to_warm(Timed(2).info, 2) == [(1, 1), (2, 0), (2, 2), (2, 1), (1, 0)]
