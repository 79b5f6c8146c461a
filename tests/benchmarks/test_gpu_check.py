"""The GPU check, run whole on the CPU, and what it does when sections fail, crash or run late."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gpu_check
import numpy as np
import pytest
from gpu_bandwidth import copy_on_device
from gpu_builder import await_package
from gpu_plan import PARITY, SECTIONS
from gpu_process import run_sections
from gpu_sections import Recorder, Section, Setup, allotted, play
from gpu_table import LIMIT, table

PROGRAM = Path(gpu_check.__file__)
CPU = Setup("cpu", "cpu", True, Path("unused"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """(the JSON document, stdout) of the whole check on the CPU."""
    pytest.importorskip("optimum.exporters.onnx", reason="exports for real")
    out = tmp_path_factory.mktemp("gpu") / "check.json"
    arguments = ["--device", "cpu", "--made-for", "cuda", "--tiny", "--json", str(out)]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return json.loads(out.read_text()), done.stdout


def test_every_section_ran_and_every_check_passed(found: tuple[dict[str, Any], str]) -> None:
    document, _ = found
    sections = {one["name"]: one for one in document["sections"]}
    assert list(sections) == [section.name for section in SECTIONS]
    assert document["verdict"] == "passed"
    for name, one in sections.items():
        assert one["status"] == ("skipped" if name == "demo" else "done"), one
        assert all(check["passed"] for check in one["checks"])
    for name in PARITY:
        assert sections[name]["checks"], name
    differences = sections["logits"]["figures"].values()
    assert all(0.0 < part["3 rows after truncation"] < 0.1 for part in differences)


def test_figures_are_plausible(found: tuple[dict[str, Any], str]) -> None:
    document, _ = found
    speeds = [one for one in document["sections"] if one["name"].startswith("speed")]
    assert len(speeds) == 2
    for one in speeds:
        figures = one["figures"]
        curve = figures["verify_seconds"]
        assert curve["5"] >= 0.5 * curve["1"] > 0
        assert 1e6 < figures["weights_read"] < 1e9
        assert figures["bytes_per_second"] == pytest.approx(figures["weights_read"] / curve["1"])
        assert 0.001 < figures["share_of_copy"] < 100
        assert {line["draft"] for line in figures["pairs"]} == {"int8", "int4"}
        for line in figures["pairs"]:
            assert 0.0 < line["host_share"] < 1.0
            assert line["same_text"]
            assert line["bytes_per_round"] == 0
            assert line["tokens_per_second"] > 0
            assert 0.3 < line["acceptance"] <= 1.0 or line["num_draft_tokens"] == "auto"
            assert np.isfinite(line["speedup"])


def test_the_table_is_short_and_whole(found: tuple[dict[str, Any], str]) -> None:
    document, shown = found
    assert shown == table(document) + "\n"
    assert len(shown) < 8000
    for section in SECTIONS:
        assert section.name in shown
    assert "verdict: passed" in shown


def test_a_long_table_keeps_its_ends() -> None:
    checks = [{"name": f"check {i}", "passed": False, "detail": "x" * 400} for i in range(40)]
    one = {"status": "failed", "seconds": 1.0, "notes": ["y" * 400] * 9, "figures": {}}
    document = {
        "specdec_version": "0",
        "device": "cuda:0",
        "machine": {"cpu": "c", "onnxruntime": "1"},
        "seconds": 1.0,
        "budget_seconds": 480.0,
        "verdict": "failed",
        "sections": [{"name": f"part {i}", "checks": checks, **one} for i in range(30)],
    }
    text = table(document)
    assert len(text) <= LIMIT
    assert text.startswith("GPU check")
    assert text.endswith("verdict: failed")
    assert "FAILED check 0: xxx" in text


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


def test_verdicts() -> None:
    done = [{"name": section.name, "status": "done"} for section in SECTIONS]
    assert gpu_check.verdict(done) == "passed"
    late = [*done[:-1], {"name": "demo", "status": "skipped"}]
    assert gpu_check.verdict(late) == "passed"
    assert gpu_check.verdict([{"name": "logits", "status": "skipped"}, *done[2:]]) == "incomplete"
    assert gpu_check.verdict(done[1:]) == "incomplete"
    assert gpu_check.verdict([*done[:-1], {"name": "demo", "status": "failed"}]) == "failed"


_CHILD = """
import json, os, signal, sys, time
for name in sys.argv[1:]:
    print(json.dumps({"begin": name, "seconds": 0.0}), flush=True)
    if name == "crashes":
        found = {"name": name, "checks": [], "notes": [], "figures": {"before": 1}}
        print(json.dumps({"so far": found}), flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "hangs":
        time.sleep(600)
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
    monkeypatch.setattr("gpu_process._PATIENCE", 1.0)
    monkeypatch.setattr("gpu_process._OVERTIME", 1.0)
    for seconds, status in ((300.0, "failed"), (-10.0, "skipped")):
        results = run_sections(
            lambda waiting: [sys.executable, "-c", _CHILD, *waiting],
            ["hangs", "last"],
            time.monotonic() + seconds,
        )
        assert [one["status"] for one in results] == [status, "done"]
        assert results[0]["notes"] == ["it was stopped: no sign of life for 1 s"]
        assert bool(results[0]["checks"]) == (status == "failed")


def test_a_device_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--device", "cuda:999"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("gpu_check: device cuda:999 ")
    assert shown.err.count("\n") == 1


def test_the_copy_moves_what_it_says(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    assert 1e8 < copy_on_device("cpu", 1 << 22, tmp_path) < 1e13
