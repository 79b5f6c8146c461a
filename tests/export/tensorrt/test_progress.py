from __future__ import annotations

import pytest

from specdec.export.tensorrt.build_progress import BuildProgress


def test_nested_phases_add_up_to_one() -> None:
    done: list[float] = []
    progress = BuildProgress(done.append)
    progress.start("build", None, 2)
    assert progress.complete("build", 0)
    assert sum(done) == pytest.approx(0.5)
    progress.start("inner", "build", 4)
    for step in range(4):
        progress.complete("inner", step)
        assert sum(done) == pytest.approx(0.5 + 0.125 * (step + 1))
    progress.finish("inner")
    progress.complete("build", 1)
    progress.finish("build")
    assert sum(done) == pytest.approx(1.0)
    assert min(done) > 0


def test_it_never_goes_back_nor_past_the_end() -> None:
    done: list[float] = []
    progress = BuildProgress(done.append)
    progress.start("build", None, 1)
    for name in ("a", "b", "c"):  # side by side under one step
        progress.start(name, "build", 1)
    for name in ("a", "b", "c"):
        progress.complete(name, 0)
        progress.finish(name)
    progress.finish("build")
    assert sum(done) == pytest.approx(1.0)
    progress.complete("unknown", 3)
    progress.finish("unknown")
    assert sum(done) == pytest.approx(1.0)


def test_stopping_is_answered_at_the_next_step() -> None:
    done: list[float] = []
    progress = BuildProgress(done.append)
    progress.start("build", None, 0)
    assert progress.complete("build", 0)
    progress.stop()
    assert not progress.complete("build", 0)
    progress.finish("build")
    assert sum(done) == pytest.approx(1.0)
