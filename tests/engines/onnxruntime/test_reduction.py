"""Logits reduced by the graphs in engines/onnxruntime/heads, against NumPy on the same rows."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from specdec.engines import Device, EngineError, Reduction, load_package
from specdec.engines.onnxruntime.engine import OrtEngine
from specdec.engines.onnxruntime.head import LogitsHead
from tests.engines.test_load import CAPACITY, TOKENS, VOCAB, root  # noqa: F401
from tests.support.other_memory import OtherMemory

VOCAB_SIZE = 300


BESIDE = OtherMemory("cpu")


class Pass:
    """Logits that an engine left on its device, for a head to read."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        from onnxruntime import OrtValue

        self.logits = OrtValue.ortvalue_from_numpy(rows)
        self.logits_array = None
        self._rows = rows


def rows_of(padding: int, seed: int = 0) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).normal(size=(1, 3, VOCAB_SIZE + padding)) * 4
    rows[:, :, VOCAB_SIZE:] = 99.0
    return rows.astype(np.float32)


def test_the_graphs_are_what_the_script_writes() -> None:
    pytest.importorskip("onnx", reason="the script makes them with the onnx package")
    top = Path(__file__).resolve().parents[3]
    graphs = runpy.run_path(str(top / "scripts" / "write_heads.py"))["graphs"]()
    folder = top / "engines" / "onnxruntime" / "heads"
    stored = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert stored == graphs


@pytest.mark.parametrize("padding", [0, 7])
@pytest.mark.parametrize("device", [Device("cpu"), BESIDE])
def test_every_reduction(padding: int, device: Device) -> None:
    rows = rows_of(padding)
    real = rows[0, :, :VOCAB_SIZE]
    head = LogitsHead("target", device, VOCAB_SIZE, VOCAB_SIZE + padding)
    bound = Pass(rows)
    ranked = np.argsort(-real, axis=1)
    for reduction in (Reduction(1), Reduction(5), Reduction(5, 0.7), Reduction(VOCAB_SIZE, 2.0)):
        for found, row, order in zip(head.reduced(bound, reduction), real, ranked, strict=True):
            best = order[: reduction.count]
            assert found.is_sound
            assert found.is_unique
            assert found.ids.tolist() == best.tolist()
            assert found.values.tolist() == row[best].tolist()
            np.testing.assert_array_equal(found.full()[:VOCAB_SIZE], row)
            if reduction.temperature is None:
                assert found.mass is None
                assert found.checksum == pytest.approx(row.sum(dtype=np.float64), rel=1e-4)
            else:
                scaled = (row.astype(np.float64) - row.max()) / reduction.temperature
                assert found.mass == pytest.approx(np.exp(scaled).sum(), rel=1e-6)


def test_bytes_are_counted_where_memory_differs() -> None:
    rows = rows_of(0)
    here, there = (LogitsHead("target", d, VOCAB_SIZE, VOCAB_SIZE) for d in (Device("cpu"), BESIDE))
    for head in (here, there):
        head.reduced(Pass(rows), Reduction(1))
        head.reduced(Pass(rows), Reduction(5, 0.7))
        head.full(Pass(rows))
    assert here.bytes_moved == 0
    assert there.bytes_moved == 3 * (8 + 4 + 4 + 4) + 3 * (5 * 12 + 8) + rows.nbytes


@pytest.mark.parametrize("reduction", [Reduction(1), Reduction(4), Reduction(4, 0.5)])
def test_ties_of_the_best_are_told(reduction: Reduction) -> None:
    head = LogitsHead("target", Device("cpu"), VOCAB_SIZE, VOCAB_SIZE)
    rows = rows_of(0)
    rows[0, 1, [7, 250]] = 50.0
    unique = [row.is_unique for row in head.reduced(Pass(rows), reduction)]
    assert unique == [True, False, True]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("reduction", [Reduction(1), Reduction(4), Reduction(4, 0.5)])
def test_a_bad_number_anywhere_is_noticed(bad: float, reduction: Reduction) -> None:
    head = LogitsHead("target", Device("cpu"), VOCAB_SIZE, VOCAB_SIZE)
    for place in (0, 17, VOCAB_SIZE - 1):
        rows = rows_of(0)
        rows[0, 1, place] = bad
        sound = [row.is_sound for row in head.reduced(Pass(rows), reduction)]
        assert sound == [True, False, True]


@pytest.mark.parametrize("reduction", [Reduction(1), Reduction(4), Reduction(4, 0.5)])
def test_forbidden_tokens_are_no_fault(reduction: Reduction) -> None:
    head = LogitsHead("target", Device("cpu"), VOCAB_SIZE, VOCAB_SIZE)
    rows = rows_of(0)
    rows[0, 0, 5:] = -np.inf
    rows[0, 2] = -np.inf
    assert [row.is_sound for row in head.reduced(Pass(rows), reduction)] == [True, True, False]


@pytest.fixture
def engines(root: Path) -> Iterator[dict[str, OrtEngine]]:  # noqa: F811
    """The same engine on the host's memory and on memory of its own."""
    loaded = {
        "host": load_package(root, num_threads=1, load_draft=False),
        "beside": load_package(root, device=BESIDE, num_threads=1, load_draft=False),
    }
    yield {name: package.target for name, package in loaded.items()}  # type: ignore[misc]
    for package in loaded.values():
        package.close()


def test_inputs_on_a_device_are_written_before_each_pass(engines: dict[str, OrtEngine]) -> None:
    """A bound input is copied to its device when it is bound: a second pass must not see it."""
    host, beside = engines["host"], engines["beside"]
    for step, ids in enumerate(([[3, 1, 4, 1]], [[5]], [[2]], [[6, 5]], [[3]])):
        tokens = np.array(ids, np.int64)
        expected, got = host.forward(tokens, len(ids[0])), beside.forward(tokens, len(ids[0]))
        np.testing.assert_array_equal(expected, got)
        if step == 2:
            host.truncate(5)
            beside.truncate(5)
    assert host.bytes_moved == 0
    rows = 4 + 1 + 1 + 2 + 1
    assert beside.bytes_moved == rows * 8 + 5 * 4 + rows * VOCAB * 4


def test_a_reduced_pass_is_a_pass(engines: dict[str, OrtEngine]) -> None:
    host, beside = engines["host"], engines["beside"]
    assert not host.reduces(Reduction(1))
    assert host.reduces(Reduction(4, 0.7))
    assert beside.reduces(Reduction(1))
    assert not beside.reduces(Reduction(VOCAB + 1))
    logits = host.forward(TOKENS, 3)[0]
    rows = beside.forward_reduced(TOKENS, 3, Reduction(1))
    assert [int(row.ids[0]) for row in rows] == logits.argmax(axis=1).tolist()
    assert beside.length == host.length == 4
    assert beside.forward_reduced(TOKENS, 0, Reduction(1)) == []
    assert beside.length == 8
    beside.close()
    with pytest.raises(EngineError, match="closed"):
        beside.forward_reduced(TOKENS, 1, Reduction(1))


def test_a_failing_head_leaves_the_length(
    engines: dict[str, OrtEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = engines["beside"]
    beside.forward(TOKENS, 1)
    monkeypatch.setattr("specdec.engines.onnxruntime.head._FOLDER", Path("/nowhere"))
    with pytest.raises(EngineError, match="target engine"):
        beside.forward_reduced(TOKENS, 1, Reduction(2))
    assert beside.length == 4


def test_the_length_on_the_cpu_may_be_the_capacity(root: Path) -> None:  # noqa: F811
    """What a captured graph relies on: rows past `seqlens_k` are masked whatever the total says."""
    from specdec.engines.onnxruntime.binding import BoundPass

    with load_package(root, num_threads=1, load_draft=False) as package:
        engine = package.target
        assert isinstance(engine, OrtEngine)
        expected = [engine.forward(np.array([[t]], np.int64), 1).copy() for t in (3, 1, 4)]
        values = engine.cache.buffers.items()
        fixed = BoundPass(
            engine._session,
            engine._places,
            {p + n: v for p in ("past_key_values.", "present.") for n, v in values},
            device=Device("cpu"),
            rows=1,
            num_logits=1,
            logits_width=VOCAB,
            fixed_total=CAPACITY,
        )
        for past, (token, logits) in enumerate(zip((3, 1, 4), expected, strict=True)):
            fixed.run(np.array([[token]], np.int64), past)
            np.testing.assert_allclose(fixed.logits_array, logits, rtol=1e-6)
