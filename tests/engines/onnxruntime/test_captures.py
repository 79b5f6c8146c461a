"""What CUDA graphs ask of an engine, on the CPU: numbers, one thread, and passes without them.

A session of ONNX Runtime's CPU provider computes; what stands before it notes which graph each run
was for, and refuses some as a GPU might.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specdec.engines import Device, EngineEntry, EngineError, OrtOptions, load_package
from specdec.engines.onnxruntime.captures import Captures
from specdec.engines.onnxruntime.engine import OrtEngine
from specdec.engines.onnxruntime.load import _resolve_graphs
from specdec.runtime import SamplingParams, SpeculativeDecoder
from tests.engines.packages import TARGET_FIELDS, assert_one_line
from tests.engines.test_load import TOKENS, root  # noqa: F401

GRAPHS = OrtOptions(cuda_graphs=True)


class Watched:
    """A session that notes (number of the CUDA graph, thread) of every run."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.runs: list[tuple[str, int]] = []
        self.refuses = False
        """Fail the runs that would be captured."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_with_iobinding(self, binding: Any, options: Any) -> None:
        number = options.get_run_config_entry("gpu_graph_id")
        self.runs.append((number, threading.get_ident()))
        if self.refuses and number != "-1":
            raise RuntimeError(
                "CUDA failure 900: operation not permitted\nwhen stream is capturing"
            )
        self._session.run_with_iobinding(binding, options)


class Captured:
    """An engine that captures, over the session of one that does not."""

    def __init__(self, plain: OrtEngine, captures: Captures) -> None:
        self.session = Watched(plain._session)
        fresh = plain.beside().cache
        self.engine = OrtEngine(self.session, plain.info, fresh, 32, GRAPHS, captures)


@pytest.fixture
def plain(root: Path) -> Iterator[OrtEngine]:  # noqa: F811
    with load_package(root, num_threads=1, load_draft=False) as package:
        assert isinstance(package.target, OrtEngine)
        yield package.target


def rows(engine: OrtEngine) -> list[np.ndarray]:
    """Logits of a prompt of 3, of steps, and of a step after a truncation."""
    engine.forward(TOKENS[:, :2], 0)
    found = [engine.forward(TOKENS[:, 2:3], 1).copy(), engine.forward(TOKENS[:, :2], 2).copy()]
    engine.truncate(4)
    return [*found, engine.forward(TOKENS[:, 1:2], 1).copy()]


def test_each_shape_has_its_graph_and_all_run_on_one_thread(plain: OrtEngine) -> None:
    expected = rows(plain)
    tested = Captured(plain, Captures(True))
    for got, wanted in zip(rows(tested.engine), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    with ThreadPoolExecutor(1) as other:
        other.submit(tested.engine.forward, TOKENS[:, :1], 1).result()
    assert [number for number, _ in tested.session.runs] == ["-1", "1", "2", "1", "1"]
    assert len({thread for _, thread in tested.session.runs}) == 1
    assert tested.session.runs[0][1] != threading.get_ident()
    assert tested.engine.uncaptured is None


def test_engines_on_one_session_share_no_graph(plain: OrtEngine) -> None:
    """A graph holds the addresses of one cache."""
    tested = Captured(plain, Captures(True))
    other = tested.engine.beside()
    for engine in (tested.engine, other, tested.engine):
        engine.forward(TOKENS[:, :1], 1)
    assert [number for number, _ in tested.session.runs] == ["1", "2", "1"]


def test_a_pass_that_cannot_be_captured_runs_without(plain: OrtEngine) -> None:
    expected = rows(plain)
    tested = Captured(plain, Captures(True))
    tested.session.refuses = True
    for got, wanted in zip(rows(tested.engine), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert [number for number, _ in tested.session.runs] == ["-1", "1", "-1", "-1", "-1"]
    reason = tested.engine.uncaptured
    assert reason is not None
    assert reason.startswith("a pass could not be captured: ")
    assert "CUDA failure 900: operation not permitted when stream" in reason


def test_what_was_asked_for_is_an_error(plain: OrtEngine) -> None:
    tested = Captured(plain, Captures(True, required=True))
    tested.session.refuses = True
    with pytest.raises(EngineError, match="failed on 1 rows at position 0") as caught:
        tested.engine.forward(TOKENS[:, :1], 1)
    assert_one_line(caught.value)
    assert tested.engine.length == 0


def test_an_error_of_a_prompt_is_not_laid_at_the_graphs(plain: OrtEngine) -> None:
    tested = Captured(plain, Captures(True))
    tested.session._session = None
    with pytest.raises(EngineError, match="failed on 2 rows"):
        tested.engine.forward(TOKENS[:, :2], 0)
    assert tested.engine.uncaptured is None


def test_the_statistics_say_why(plain: OrtEngine) -> None:
    tested = Captured(plain, Captures(True))
    tested.session.refuses = True
    decoder = SpeculativeDecoder(tested.engine, None)
    result = decoder.generate(TOKENS[0].tolist(), SamplingParams(max_new_tokens=3))
    assert result.stats.uncaptured == f"target: {tested.engine.uncaptured}"
    assert SpeculativeDecoder(plain, None).generate([1, 2]).stats.uncaptured is None


GPU = Device("cuda")
ENTRY = EngineEntry(**TARGET_FIELDS)


@pytest.mark.parametrize(
    ("entry", "device", "wanted", "graphs", "reason"),
    [
        (ENTRY, GPU, None, True, None),
        (ENTRY, GPU, True, True, None),
        (ENTRY, GPU, False, False, None),
        (ENTRY, Device("cpu"), None, False, None),
        (replace(ENTRY, layout="concatenated"), GPU, None, False, "the engine's layout is conc"),
        (replace(ENTRY, backend="onnxruntime-tensorrt"), GPU, None, False, "TensorRT's provider"),
    ],
)
def test_who_captures(
    entry: EngineEntry, device: Device, wanted: bool | None, graphs: bool, reason: str | None
) -> None:
    options, found = _resolve_graphs(entry, "target", device, OrtOptions(cuda_graphs=wanted))
    assert options.cuda_graphs is graphs
    assert (reason is None) == (found is None)
    assert (reason or "").replace("the engine", "the target engine") in (found or "")


def test_graphs_that_are_asked_for_need_fixed_buffers() -> None:
    entry = replace(ENTRY, layout="concatenated")
    with pytest.raises(EngineError, match="CUDA graphs need fixed buffers") as caught:
        _resolve_graphs(entry, "target", GPU, GRAPHS)
    assert_one_line(caught.value)
