"""Exit codes and reasons, for every way a command can end."""

import subprocess
import sys

import click
import pytest

from specdec.cli.common import invoke
from specdec.engines.errors import EngineError
from specdec.runtime.errors import InvalidParameterError


def run(error: BaseException | None, *arguments: str) -> int:
    @click.command("specdec-test")
    @click.option("--number", type=int)
    def command(number: int | None) -> int:
        click.echo("result")
        if error is not None:
            raise error
        return 0

    return invoke(command, arguments)


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (None, 0, ""),
        (EngineError("it\n  broke"), 1, "error: it broke\n"),
        (InvalidParameterError("top_p is 2; allowed is 0 .. 1"), 2, "error: top_p is 2; all"),
        (OSError(28, "No space left"), 1, "error: OSError: [Errno 28] No space left (SPECDEC_DEBU"),
        (click.ClickException("no such thing"), 1, "error: no such thing\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (BrokenPipeError(32, "Broken pipe"), 0, ""),
        (
            BaseException("a panic of Rust"),
            1,
            "error: BaseException: a panic of Rust (SPECDEC_DEBU",
        ),
    ],
)
def test_exit_codes(
    error: BaseException | None,
    code: int,
    reason: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("specdec.cli.common._discard_stdout", lambda: None)
    assert run(error) == code
    captured = capsys.readouterr()
    assert captured.out == "result\n"
    assert captured.err.startswith(reason)
    assert captured.err.count("\n") == (1 if reason else 0)


def test_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None, "--number", "x") == 2
    assert run(None, "--nonsense") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "'x' is not a valid integer" in captured.err


def test_help_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None, "--help") == 0
    assert "--number" in capsys.readouterr().out


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(ZeroDivisionError())


PIPE = """
import click
from specdec.cli.common import invoke
@click.command("specdec-test")
def command():
    for _ in range(100000):
        click.echo("a line")
    return 0
raise SystemExit(invoke(command, []))
"""


def test_a_reader_that_goes_away_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PIPE], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.readline() == b"a line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize("module", ["bench", "export", "inspector", "run"])
def test_commands_start_light(module: str) -> None:
    heavy = "{'torch', 'transformers', 'onnx', 'onnxruntime', 'tokenizers', 'rich', 'numpy'}"
    program = f"import sys, specdec.cli.{module}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
