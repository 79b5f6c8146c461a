"""`specdec-export`: options, refusals and the report, on models that can be made here."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specdec.cli.common import invoke
from specdec.cli.export import DRAFT_PRECISIONS, TARGET_PRECISIONS, command

pytestmark = pytest.mark.slow

SELF = ["--target", "demo", "--draft", "self", "--out", "package"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "Missing option '--target'"),
        (["--target", "demo", "--out", "x"], "Missing option '--draft'"),
        ([*SELF, "--draft-precision", "int3"], "'int3' is not one of"),
        ([*SELF, "--backend", "openvino"], "'openvino' is not"),
        ([*SELF, "--device", "cuda:1"], "'cuda:1' is not one of 'cpu', 'cuda'"),
        ([*SELF, "extra"], "unexpected extra argument"),
    ],
)
def test_wrong_usage(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(command, arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert reason in captured.err


def test_help_needs_no_export_library() -> None:
    program = (
        "import sys, specdec.cli.common as c, specdec.cli.export as e;"
        "code = c.invoke(e.command, ['--help']);"
        "assert not {'torch', 'transformers', 'onnx', 'numpy'} & set(sys.modules);"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--draft-precision" in done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("optimum.exporters.onnx", reason="exports for real")
    from tests.cli.tiny_source import write_tiny_source

    return write_tiny_source(tmp_path_factory.mktemp("source") / "tiny")


@pytest.fixture(scope="module")
def exported(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One export of the tiny pair as a process, its output, and where it went."""
    out = tmp_path_factory.mktemp("exported") / "package"
    done = export(source, out, "--json")
    return {"out": out, "done": done}


def export(source: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *pair(source, out), *arguments],
        capture_output=True,
        text=True,
    )


PROGRAM = "from specdec.cli.export import main; main()"


def pair(source: Path, out: Path) -> list[str]:
    return ["--target", str(source), "--draft", "self", "--out", str(out), "--num-threads", "1"]


def test_a_report_on_stdout_and_the_steps_on_stderr(exported: dict[str, Any]) -> None:
    done = exported["done"]
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert report["package"] == str(exported["out"])
    steps = done.stderr.splitlines()
    assert steps[0].startswith("load the export libraries ... ")
    assert all(line.startswith("note: ") or line.endswith(" s") for line in steps)


def test_the_package_generates(
    exported: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    from specdec.cli.run import command as run

    texts = []
    for number in ("0", "3"):
        options = ["--num-draft-tokens", number, "--max-new-tokens", "12", "--json"]
        assert invoke(run, [str(exported["out"]), "--prompt", "hello", *options]) == 0
        texts.append(json.loads(capsys.readouterr().out)["token_ids"])
    assert len(texts[0]) == 12
    assert texts[0] == texts[1]


def test_a_package_for_a_gpu_tells_where_it_was_checked(source: Path, tmp_path: Path) -> None:
    done = export(source, tmp_path / "package", "--device", "cuda", "--report", "short", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["source"]["device"] == "cuda"
    if report["costs"] == {}:
        assert "note: the engines are checked on the CPU" in done.stderr
    steps = done.stderr.splitlines()
    assert all(line.startswith("note: ") or line.endswith(" s") for line in steps)


def test_an_existing_package_is_not_replaced_unasked(
    exported: dict[str, Any], source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = exported["out"] / "specdec.json"
    before = manifest.read_bytes()
    assert invoke(command, pair(source, exported["out"])) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--overwrite" in captured.err.splitlines()[-1]
    assert manifest.read_bytes() == before


def test_a_source_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optimum.exporters.onnx", reason="exports for real")
    assert invoke(command, pair(tmp_path / "nothing", tmp_path / "package")) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("error: ")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_nothing(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "package"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *pair(source, out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        seen = b""
        while b"trace target" not in seen:
            seen += process.stderr.read(1)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b""
        assert process.stderr.read().decode().splitlines()[-1] == "interrupted"
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_the_choices_are_those_of_the_export() -> None:
    pytest.importorskip("onnx", reason="the export is not installed")
    from specdec.export.weights.recipes import RECIPES, find_recipe

    assert {"int8", "int4", "auto", "int8-qdq", *RECIPES} == set(DRAFT_PRECISIONS)
    assert find_recipe("int8-qdq", "tensorrt").calibrated
    assert all(find_recipe(n) for n in DRAFT_PRECISIONS if n not in ("auto", "int8-qdq"))
    assert set(TARGET_PRECISIONS) <= set(DRAFT_PRECISIONS)
