"""The Python facade: buffers without copies, engines of the host, the example."""

from __future__ import annotations

import ctypes
import runpy
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from specdec.runtime import ClosedError, SamplingParams, SpeculativeDecoder
from specdec.runtime.embed import BadArgumentError, TokenDecoder, view
from tests.support.table_engine import TableEngine, nearby_table, random_table

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_engine.py"
TABLE = random_table(3, 7, dtype=np.float32)
DRAFT = nearby_table(TABLE, 4, 0.5)


class Tensor:
    """DLPack and nothing else, as a tensor of another framework."""

    def __init__(self, data: NDArray[Any]) -> None:
        self._data = data

    def __dlpack__(self, **options: Any) -> Any:
        return self._data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._data.__dlpack_device__()


class OtherEngine(TableEngine):
    """A table whose logits come wrapped: as DLPack, as a memoryview, or as flat floats."""

    wrap: Any = staticmethod(Tensor)

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> Any:
        logits = super().forward(token_ids, num_logits)
        return self.wrap(logits) if num_logits else None


def test_memory_is_shared_not_copied() -> None:
    numbers = np.arange(6, dtype=np.float32)
    for source in (numbers, Tensor(numbers), memoryview(numbers)):
        seen = view(source, [np.float32], (2, 3))
        assert seen.shape == (2, 3)
        assert np.shares_memory(seen, numbers)
    memory = (ctypes.c_int32 * 4)()
    view(memory, [np.int32], writable=True)[2] = 9
    assert list(memory) == [0, 0, 9, 0]


@pytest.mark.parametrize(
    ("source", "options", "word"),
    [
        (np.zeros(3, np.float16), {}, "float16"),
        (np.zeros(6, np.float32)[::2], {}, "contiguous"),
        (np.zeros(3, np.float32), {"shape": (2, 2)}, "[2, 2]"),
        (memoryview(bytes(4)).cast("f"), {"writable": True}, "read-only"),
        ([1.0, 2.0], {}, "list"),
        (None, {}, "NoneType"),
    ],
)
def test_what_would_need_a_copy_is_refused(source: object, options: Any, word: str) -> None:
    with pytest.raises(BadArgumentError) as caught:
        view(source, [np.float32], **options)
    assert word in str(caught.value)


@pytest.mark.parametrize("wrap", [Tensor, memoryview, lambda rows: rows.reshape(-1)])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_any_buffer_of_logits_gives_the_tokens_of_the_engine(wrap: Any, temperature: float) -> None:
    params = SamplingParams(
        max_new_tokens=30, temperature=temperature, seed=5, num_draft_tokens=3, ignore_eos=True
    )
    expected = SpeculativeDecoder(
        TableEngine(TABLE), TableEngine(DRAFT, name="draft"), eos_token_ids=[6]
    ).generate([1, 2], params)
    target, draft = OtherEngine(TABLE), OtherEngine(DRAFT, name="draft")
    target.wrap = draft.wrap = wrap
    out, seen = array("i", [-1] * 33), []
    with TokenDecoder(target, draft, eos_token_ids=[6]) as decoder:
        outcome = decoder.generate(array("q", [1, 2]), out, params, lambda n: bool(seen.append(n)))
    assert tuple(out[:30]) == expected.token_ids
    assert list(out[30:]) == [-1] * 3
    assert (outcome.num_tokens, outcome.finish_reason) == (30, "length")
    assert outcome.stats.accepted == expected.stats.accepted > 0
    assert seen == sorted(set(seen))
    assert seen[-1] == 30
    assert target.closed
    assert draft.closed


def test_a_callback_cancels() -> None:
    out = np.full(64, -1, np.int64)
    decoder = TokenDecoder(TableEngine(TABLE))
    outcome = decoder.generate(
        np.array([1]), out, SamplingParams(max_new_tokens=40), lambda count: count >= 2
    )
    assert outcome.finish_reason == "cancelled"
    assert outcome.num_tokens == 2
    assert list(out[2:]) == [-1] * 62


def test_wrong_buffers_of_ids() -> None:
    decoder = TokenDecoder(TableEngine(TABLE))
    params = SamplingParams(max_new_tokens=8)
    with pytest.raises(BadArgumentError, match="out holds 7 ids"):
        decoder.generate(array("i", [1]), array("i", [0] * 7), params)
    with pytest.raises(BadArgumentError, match="float64"):
        decoder.generate(array("d", [1.0]), array("i", [0] * 8), params)
    decoder.close()
    with pytest.raises(ClosedError):
        decoder.generate(array("i", [1]), array("i", [0] * 8), params)


def test_wrong_logits_are_named() -> None:
    target = OtherEngine(TABLE)
    target.wrap = lambda rows: rows.astype(np.float16)
    decoder = TokenDecoder(target)
    with pytest.raises(BadArgumentError, match="logits of the target engine holds float16"):
        decoder.generate(array("i", [1]), array("i", [0] * 128))


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("she |")
    assert len(first) == len("she ||") + 60
    assert second.endswith("of the drafted letters were accepted")
