"""The kit for a machine with a GPU: parts that join again, and a check from ready packages."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import gpu_check
import pytest
from gpu.ready import ReadyError, is_ready, link_into, read_index
from gpu.sections import Setup

from specdec.engines.release import VERSION

TOP = Path(gpu_check.__file__).resolve().parents[1]
KIT = runpy.run_path(str(TOP / "scripts" / "gpu_kit.py"))
needs_tools = pytest.mark.skipif(
    not (shutil.which("sha256sum") and shutil.which("tar")), reason="runs join.sh"
)


def join(folder: Path) -> subprocess.CompletedProcess[str]:
    line = ["sh", str(folder / "join.sh"), "--unpack"]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@needs_tools
def test_parts_are_small_and_join_to_what_they_were(tmp_path: Path) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    (tree / "packages" / "one").mkdir(parents=True)
    (tree / "packages" / "one" / "weights").write_bytes(bytes(range(256)) * 400)
    (tree / "run.sh").write_text("echo ran\n")
    KIT["write_parts"](tree, out, 30_000)
    parts = sorted(out.glob("gpu-kit.tar.*"))
    assert len(parts) > 3
    assert all(part.stat().st_size <= 30_000 for part in parts)
    assert join(out).returncode == 0
    joined = out / "gpu-kit" / "packages" / "one" / "weights"
    assert joined.read_bytes() == bytes(range(256)) * 400
    ran = subprocess.run(["sh", str(out / "join.sh")], capture_output=True, text=True, check=True)
    assert ran.stdout == "ran\n"


@needs_tools
def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    tree.mkdir()
    (tree / "file").write_bytes(b"x" * 50_000)
    KIT["write_parts"](tree, out, 30_000)
    part = out / "gpu-kit.tar.0001"
    part.write_bytes(b"y" + part.read_bytes()[1:])
    done = join(out)
    assert done.returncode != 0
    assert "gpu-kit.tar.0001" in done.stdout + done.stderr
    assert not (out / "gpu-kit").exists()


def index(folder: Path, **changes: object) -> Path:
    known = {"format": 1, "specdec_version": VERSION, "made_for": "cuda", "tiny": True}
    folder.mkdir()
    (folder / "packages.json").write_text(json.dumps({**known, **changes}))
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "is not of format 1"),
        ({"specdec_version": "0.0.1"}, r"made by specdec 0\.0\.1, and .* is installed"),
        ({"made_for": "tpu"}, "does not say what it was made for"),
        ({"tiny": 1}, "does not say what it was made for"),
    ],
)
def test_folders_that_are_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ReadyError, match=message):
        read_index(index(tmp_path / "made", **changes))


def test_a_folder_without_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--device", "cpu", "--packages", str(tmp_path)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "has no readable packages.json" in line


def test_options_that_the_folder_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = str(index(tmp_path / "made"))
    assert gpu_check.main(["--device", "cpu", "--packages", made, "--tiny"]) == 2
    assert "leave out --work, --tiny" in capsys.readouterr().err


def test_links_make_a_work_folder_ready(tmp_path: Path) -> None:
    made, work = index(tmp_path / "made"), tmp_path / "work"
    (made / "pair").mkdir()
    work.mkdir()
    setup = Setup("cpu", "cuda", True, work)
    assert not is_ready(setup)
    link_into(made, work)
    assert is_ready(setup)
    assert (work / "pair").is_dir()


@pytest.mark.slow
def test_a_check_from_ready_packages_exports_nothing(tmp_path: Path) -> None:
    """With every way to the export closed, as on a machine without its extra."""
    pytest.importorskip("optimum.exporters.onnx", reason="exports for real")
    made, out = tmp_path / "made", tmp_path / "check.json"
    program = str(Path(gpu_check.__file__))
    subprocess.run([sys.executable, program, "--make-packages", str(made), "--tiny"], check=True)
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in ("torch", "onnx_ir", "transformers"):
        (blocked / f"{name}.py").write_text("raise ImportError('this machine exports nothing')\n")
    path = os.pathsep.join([str(blocked), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    arguments = ["--device", "cpu", "--packages", str(made), "--json", str(out)]
    arguments += ["--only", "logits", "--only", "speed, small", "--budget-minutes", "3"]
    done = subprocess.run(
        [sys.executable, program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    sections = {one["name"]: one["status"] for one in json.loads(out.read_text())["sections"]}
    assert sections == {"export": "done", "logits": "done", "speed, small": "done"}
