"""The GPU check, run whole on the CPU; its options, its verdict, and how it is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gpu_check
import numpy as np
import pytest
from gpu.plan import PARITY, SECTIONS
from gpu.table import LIMIT, table

from specdec.engines.release import VERSION

pytestmark = pytest.mark.slow

PROGRAM = Path(gpu_check.__file__)


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


def test_verdicts() -> None:
    done = [{"name": section.name, "status": "done"} for section in SECTIONS]
    assert gpu_check.verdict(done) == "passed"
    late = [*done[:-1], {"name": "demo", "status": "skipped"}]
    assert gpu_check.verdict(late) == "passed"
    assert gpu_check.verdict([{"name": "logits", "status": "skipped"}, *done[2:]]) == "incomplete"
    assert gpu_check.verdict(done[1:]) == "incomplete"
    assert gpu_check.verdict([*done[:-1], {"name": "demo", "status": "failed"}]) == "failed"
    names = ["export", "logits"]
    assert gpu_check.verdict(done[:2], names) == "passed"
    assert gpu_check.verdict(done[:1], names) == "incomplete"
    assert gpu_check.verdict([{"name": "demo", "status": "skipped"}], ["demo"]) == "incomplete"


def test_a_parity_section_brings_the_export_that_it_loads() -> None:
    assert gpu_check._chosen(["greedy"]) == ["export", "greedy"]
    assert gpu_check._chosen(["speed, large", "demo"]) == ["speed, large", "demo"]
    assert gpu_check._chosen(None) == [section.name for section in SECTIONS]


def test_a_device_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--device", "cuda:999"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("gpu_check: device cuda:999 ")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--json", "{tmp}/missing/out.json"], "there is no directory {tmp}/missing; create it"),
        (["--json", "{tmp}"], "{tmp} is a directory; name a file"),
        (["--device", "cuda:0", "--made-for", "cpu"], "does not run packages made for the CPU"),
        (["--budget-minutes", "nan"], "--budget-minutes is nan; allowed is a number above 0"),
        (["--work", "{tmp}/file"], "--work {tmp}/file is not a directory"),
    ],
)
def test_options_that_make_no_sense_are_one_line(
    arguments: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    given = [argument.format(tmp=tmp_path) for argument in ["--device", "cpu", *arguments]]
    assert gpu_check.main(given) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert reason.format(tmp=tmp_path) in shown.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_packages_are_kept_apart_by_kind_and_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []
    for kind, code in (("cpu", None), ("cuda", None), ("cpu", 1)):
        if code is not None:
            monkeypatch.setattr(gpu_check, "_code", lambda code=code: code)
        with gpu_check._folder(tmp_path, kind) as folder:
            folders.append(folder)
            assert VERSION in folder.name
    assert len(set(folders)) == 3
    monkeypatch.undo()
    with gpu_check._folder(tmp_path, "cpu") as folder:
        assert folder == folders[0]


def _running(part: str) -> list[str]:
    """Command lines of processes that name `part`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if part in line:
            found.append(line)
    return found


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_a_signal_ends_the_children_and_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("optimum.exporters.onnx", reason="exports for real")
    arguments = ["--device", "cpu", "--made-for", "cuda", "--tiny"]
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as child:
        try:
            deadline = time.monotonic() + 60
            while len(_running(str(tmp_path))) < 2:  # sections and builder name the work folder
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert list(tmp_path.glob("specdec-*"))
            child.send_signal(signal.SIGTERM)
            assert child.wait(timeout=30) == 128 + signal.SIGTERM
        finally:
            child.kill()
    assert list(tmp_path.glob("specdec-*")) == []
    assert _running(str(tmp_path)) == []
