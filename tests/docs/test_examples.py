"""The examples of the documentation run as they stand, and say what the text says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.alphabet_package import write_alphabet_package

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
PYTHON = FENCE.findall((ROOT / "docs" / "python.md").read_text("utf-8"))
README = FENCE.findall((ROOT / "README.md").read_text("utf-8"))
SAYS = (
    ("fghijklmnopqrstuvwxyz stop",),
    ("4 messages",),
    ("cancelled after",),
    ("top_p has no effect at temperature 0, which takes the likeliest token",),
    ("cdefghij", "of"),
    ("stop",),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `my-package` in it."""
    pytest.importorskip("onnx", reason="builds the package's graphs")
    path = tmp_path_factory.mktemp("examples")
    write_alphabet_package(path / "my-package")
    return path


@pytest.mark.parametrize(("program", "says"), list(zip([*PYTHON, *README], SAYS, strict=True)))
def test_an_example(program: str, says: tuple[str, ...], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for text in says:
        assert text in done.stdout


def test_the_notebook(tmp_path: Path, tiny_package: Path) -> None:
    """Its cells, in order, over a real report of a tiny package."""
    pytest.importorskip("matplotlib", reason="plots")
    notebook = json.loads((ROOT / "docs" / "report.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    shutil.copytree(tiny_package, tmp_path / "my-package")
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "specdec-inspect"
    program = "from specdec.cli.inspector import main; main()"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}" "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": str(tmp_path),
    }
    measure = [str(command), "my-package", "--measure", "short", "--save"]
    subprocess.run(measure, cwd=tmp_path, env=environment, capture_output=True, check=True)
    source = "\n".join("".join(cell["source"]) for cell in cells)
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("costs.png", "speedups.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    unit = re.findall(r"^```ini\n(.*?)^```$", text, re.M | re.S)[0]
    unit = unit.replace("/opt/specdec/env/bin/specdec-serve", sys.executable).replace(
        "User=specdec\n", "User=root\n"
    )
    (tmp_path / "specdec.service").write_text(unit)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "specdec.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if "specdec.service" in line]
    assert complaints == []
