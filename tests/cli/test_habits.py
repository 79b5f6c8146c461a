"""What every command answers: its version, and the completion of a shell."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

import specdec.runtime
from specdec.cli.common import invoke
from specdec.engines.release import VERSION

COMMANDS = {
    "specdec-export": "export",
    "specdec-run": "run",
    "specdec-audit": "audit",
    "specdec-bench": "bench",
    "specdec-inspect": "inspector",
    "specdec-serve": "serve",
}


@pytest.mark.parametrize(("name", "module"), COMMANDS.items())
def test_version(name: str, module: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = importlib.import_module(f"specdec.cli.{module}").command
    assert invoke(command, ["--version"]) == 0
    assert capsys.readouterr().out == f"{name} {VERSION} (specdec-edge)\n"
    assert specdec.runtime.__version__ == VERSION


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_names_the_command(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from specdec.cli.run import command

    assert invoke(command, ["--completion", shell]) == 0
    script = capsys.readouterr().out
    assert "specdec-run" in script
    assert f"_SPECDEC_RUN_COMPLETE={shell}_complete" in script


def test_a_shell_gets_its_completions() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from specdec.cli.run import main; main()"],
        env={
            **os.environ,
            "_SPECDEC_RUN_COMPLETE": "bash_complete",
            "COMP_WORDS": "specdec-run --num",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["plain,--num-threads", "plain,--num-draft-tokens"]


def test_threads_have_one_name_everywhere() -> None:
    """`num_threads`, as in the programming interface."""
    for module in COMMANDS.values():
        command = importlib.import_module(f"specdec.cli.{module}").command
        flags = [flag for parameter in command.params for flag in parameter.opts]
        assert "--num-threads" in flags
        assert "--threads" not in flags
