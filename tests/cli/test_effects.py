"""Options that can have no effect are refused by name, in every command."""

from __future__ import annotations

import importlib
import io
from pathlib import Path

import pytest

from specdec.cli.common import invoke

GREEDY = "at temperature 0, which takes the likeliest token"


@pytest.mark.parametrize(
    ("command", "arguments", "flag", "reason"),
    [
        ("run", ["PACKAGE", "--top-p", "0.9"], "--top-p", GREEDY),
        ("run", ["PACKAGE", "--top-k", "5"], "--top-k", GREEDY),
        ("run", ["PACKAGE", "--min-p", "0.1"], "--min-p", GREEDY),
        ("run", ["PACKAGE", "--seed", "0"], "--seed", GREEDY),
        ("run", ["PACKAGE", "--draft-temperature", "2"], "--draft-temperature", GREEDY),
        ("run", ["PACKAGE", "--verify", "token"], "--verify", GREEDY),
        ("run", ["PACKAGE", "--ignore-eos", "--min-new-tokens", "2"], "--min-new-tokens", "end"),
        (
            "run",
            ["PACKAGE", "--temperature", "1", "--num-draft-tokens", "0", "--verify", "token"],
            "--verify",
            "plain decoding",
        ),
        (
            "run",
            ["PACKAGE", "--drafter", "ngram", "--draft-device", "cpu"],
            "--draft-device",
            "runs no draft model",
        ),
        (
            "run",
            ["PACKAGE", "--drafter", "model", "--num-draft-tokens", "0"],
            "--drafter",
            "plain decoding",
        ),
        (
            "audit",
            ["PACKAGE", "--drafter", "none", "--draft-device", "cpu"],
            "--draft-device",
            "no",
        ),
        ("inspect", ["PACKAGE", "--num-threads", "2"], "--num-threads", "without --measure"),
        ("inspect", ["PACKAGE", "--device", "cpu"], "--device", "without --measure"),
        ("bench", ["PACKAGE", "--top-p", "0.9"], "--top-p", GREEDY),
        ("bench", ["PACKAGE", "--simulate-draft", "1M"], "--simulate-draft", "--simulate-target"),
        ("bench", ["PACKAGE", "--draft-precision", "int4"], "--draft-precision", "--simulate"),
        (
            "bench",
            ["PACKAGE", "--simulate-acceptance", "0.5", "--drafter", "model"],
            "--drafter",
            "drafts itself",
        ),
        ("bench", ["--compare", "FILE", "FILE", "--repeats", "9"], "--repeats", "with --compare"),
        ("bench", ["--compare", "FILE", "FILE", "--json"], "--json", "with --compare"),
        (
            "export",
            ["--target", "demo", "--draft", "none", "--out", "OUT", "--draft-precision", "int4"],
            "--draft-precision",
            "with --draft none",
        ),
    ],
)
def test_it_is_named_and_refused(
    command: str,
    arguments: list[str],
    flag: str,
    reason: str,
    package: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_text("{}")
    names = {"PACKAGE": package, "FILE": tmp_path / "file", "OUT": tmp_path / "out"}
    given = [str(names.get(argument, argument)) for argument in arguments]
    if command == "run":
        given += ["--prompt", "a"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    module = importlib.import_module(
        f"specdec.cli.{'inspector' if command == 'inspect' else command}"
    )
    assert invoke(module.command, given) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    error = " ".join(captured.err.partition("Error: ")[2].split())
    assert error.startswith(f"{flag} has no effect")
    assert reason in error
    assert not (tmp_path / "out").exists()


def test_an_option_that_is_set_to_off_is_no_mistake(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from specdec.cli.run import command

    assert invoke(command, [str(package), "--prompt", "x", "--top-p", "1", "--top-k", "0"]) == 0
    assert capsys.readouterr().out == "yz\n"
