"""What the GPU check does when sections or its builder fail, crash, hang or run late."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from gpu import builder as gpu_builder
from gpu import speed as gpu_speed
from gpu.adapter import free_memory
from gpu.bandwidth import copy_on_device, elements_for
from gpu.builder import BUILDING, await_package, building
from gpu.process import run_sections
from gpu.runtime import _captured
from gpu.sections import Recorder, Section, Setup, allotted, play

from specdec.engines.load import read_package

pytestmark = pytest.mark.slow

CPU = Setup("cpu", "cpu", True, Path("unused"))


def test_what_a_section_raises_is_a_failed_check() -> None:
    def broken(setup: Setup, recorder: Recorder) -> None:
        recorder.check("first", True)
        raise ValueError("two\nlines")

    said: list[str] = []
    result = play(Section("broken", 1, 0, broken), CPU, 5.0, said.append)
    assert result.status == "failed"
    assert [check.passed for check in result.checks] == [True, False]
    assert result.checks[1].detail == "ValueError: two lines"
    assert any("Traceback" in line for line in said)


def test_a_section_without_time_is_skipped_and_one_with_little_is_told() -> None:
    def slow(setup: Setup, recorder: Recorder) -> None:
        if recorder.left < 10:
            recorder.shorten("the rest")
        recorder.figure("speed", {"a": [1, float("inf")]})

    section = Section("slow", 60, 5, slow)
    skipped = play(section, CPU, 2.0, lambda line: None)
    assert (skipped.status, skipped.notes) == ("skipped", ["needs 5 s, and 2 s are left"])
    short = play(section, CPU, 6.0, lambda line: None)
    assert short.notes == ["no time for the rest"]
    assert short.status == "failed"  # a figure that is not finite
    assert short.figures == {"speed": {"a": [1, None]}}
    assert allotted([section, Section("next", 30, 5, slow)], 90.0) == 60.0
    assert allotted([section, Section("next", 1140, 5, slow)], 40.0) == 5.0
    assert allotted([section], 3.0) == 3.0


def test_a_package_that_is_late_skips_a_section_and_one_that_failed_fails_it(
    tmp_path: Path,
) -> None:
    setup = Setup("cpu", "cpu", True, tmp_path)

    def waits(setup: Setup, recorder: Recorder) -> None:
        await_package(setup, recorder, "wanted")

    section = Section("waits", 1, 0, waits)
    late = play(section, setup, 0.3, lambda line: None)
    assert (late.status, late.notes) == ("skipped", ["wanted is still being built"])
    (tmp_path / "wanted.failed").write_text("no disk")
    failed = play(section, setup, 5.0, lambda line: None)
    assert failed.checks[0].detail == "RuntimeError: wanted was not built: no disk"


@pytest.mark.parametrize(
    ("program", "code"),
    [("import no_such_module", 1), ("import os; os.kill(os.getpid(), 9)", -9), ("", 0)],
)
def test_a_builder_that_ends_early_fails_who_waits(
    program: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crashes.py").write_text(program)
    crashes = [sys.executable, str(tmp_path / "crashes.py")]
    monkeypatch.setattr(gpu_builder, "program", lambda module: crashes)
    setup = Setup("cpu", "cpu", True, tmp_path)
    (tmp_path / "wanted.failed").write_text("of an earlier run")

    def waits(setup: Setup, recorder: Recorder) -> None:
        await_package(setup, recorder, "wanted")

    with building(setup):
        found = play(Section("waits", 60, 0, waits), setup, 60.0, lambda line: None)
        assert not (tmp_path / BUILDING).exists()
    detail = f"RuntimeError: wanted was not built: the builder ended with code {code}"
    assert [check.detail for check in found.checks] == [detail]
    assert found.status == "failed"


def test_what_could_not_be_built_leaves_no_files(tmp_path: Path) -> None:
    def breaks(part: Path) -> None:
        part.mkdir()
        (part / "half").touch()
        raise OSError("no\nspace")

    gpu_builder.build(tmp_path / "wanted", breaks)
    assert [path.name for path in tmp_path.iterdir()] == ["wanted.failed"]
    assert (tmp_path / "wanted.failed").read_text() == "OSError: no space"


def test_a_package_too_large_for_the_gpu_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optimum.exporters.onnx", reason="exports for real")
    gpu_builder.build_all(tmp_path, "cuda", True)
    path = tmp_path / "simulated-6M-fp16"
    manifest = read_package(path).manifest
    cache = manifest.target.kv_cache_bytes
    needed = manifest.checks["weights_read"]["target"] + cache + 1_000_000_000
    gpu_speed.require_room(path, "cpu")
    for free, status in (
        (needed, "done"),
        (needed - 1, "skipped"),
        (500_000_000, "skipped"),
    ):
        monkeypatch.setattr(gpu_speed, "free_memory", lambda device, free=free: free)
        section = Section(
            "speed", 1, 0, lambda setup, recorder: gpu_speed.require_room(path, "cuda:0")
        )
        found = play(section, CPU, 5.0, lambda line: None)
        assert found.status == status
        assert found.checks == []
    assert found.notes == ["simulated-6M-fp16 needs about 1.0 GB of cuda:0, which has 0.5 GB free"]


def test_buffers_of_the_copy_fit_the_memory() -> None:
    assert free_memory("cpu") is None
    assert elements_for(80 << 30) == 1 << 29
    assert 2 * 4 * elements_for(3 << 30) == 3 << 29


def test_captured_steps_that_are_no_faster_are_told() -> None:
    recorder = Recorder("CUDA graphs", 1.0, lambda line: None, lambda result: None)
    assert _captured(recorder, "pair", 0.002, 0.001)
    assert recorder.result.notes == []
    assert not _captured(recorder, "pair", 0.002, 0.002)
    assert recorder.result.notes == [
        "pair: not captured, as far as time shows: a step takes 2.000 ms with CUDA graphs and "
        "2.000 ms without"
    ]


_CHILD = """
import json, os, signal, sys, time
for name in sys.argv[1:]:
    print(json.dumps({"begin": name, "seconds": 0.0, "short": "short" in name}), flush=True)
    if name == "crashes":
        found = {"name": name, "checks": [], "notes": [], "figures": {"before": 1}}
        print(json.dumps({"so far": found}), flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if "shortened" in name:
        found = {"name": name, "checks": [], "notes": [], "status": "shortened"}
        print(json.dumps({"so far": found}), flush=True)
    if "hangs" in name:
        time.sleep(600)
    while "slow" in name:
        found = {"name": name, "checks": [], "notes": [], "status": "done"}
        print(json.dumps({"so far": found}), flush=True)
        time.sleep(0.2)
    print(json.dumps({"end": {"name": name, "status": "done", "checks": []}}), flush=True)
"""


def test_a_crash_fails_one_section_and_the_others_run() -> None:
    names = ["first", "crashes", "last"]
    seen: list[int] = []
    results = run_sections(
        lambda waiting: [sys.executable, "-c", _CHILD, *waiting],
        names,
        time.monotonic() + 60,
        lambda so_far: seen.append(len(so_far)),
    )
    assert [one["name"] for one in results] == names
    assert seen == [1, 2, 3]
    assert [one["status"] for one in results] == ["done", "failed", "done"]
    assert results[1]["checks"][0]["detail"] == "its process ended with code -11"
    assert results[1]["figures"] == {"before": 1}


def test_a_section_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.process._PATIENCE", 1.0)
    monkeypatch.setattr("gpu.process._OVERTIME", 1.0)
    for name, seconds, status in (
        ("hangs", 300.0, "failed"),
        ("hangs", 2.0, "failed"),  # in the last section, over the end of the time
        ("hangs", -10.0, "skipped"),  # the time was over before
        ("hangs, short", 2.0, "skipped"),
        ("hangs, shortened", 2.0, "skipped"),
    ):
        results = run_sections(
            lambda waiting: [sys.executable, "-c", _CHILD, *waiting],
            [name, "last"],
            time.monotonic() + seconds,
        )
        assert [one["status"] for one in results] == [status, "done"], (name, seconds)
        assert results[0]["notes"][0].startswith("it was stopped: no sign of life for ")
        assert bool(results[0]["checks"]) == (status == "failed")


def test_a_section_that_is_busy_at_the_end_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.process._OVERTIME", 1.0)
    results = run_sections(
        lambda waiting: [sys.executable, "-c", _CHILD, *waiting], ["slow"], time.monotonic() + 0.5
    )
    assert results[0]["status"] == "skipped"
    assert results[0]["notes"] == ["it was stopped: the time was over"]


def test_the_copy_moves_what_it_says() -> None:
    assert 1e8 < copy_on_device("cpu", 1 << 22) < 1e13
