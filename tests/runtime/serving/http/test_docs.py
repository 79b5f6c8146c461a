"""docs/serving.md: its programs run, and its tables name every option, field and metric."""

from __future__ import annotations

import re
from pathlib import Path
from string import ascii_lowercase

import pytest

from specdec.cli.serve import command
from specdec.runtime.serving.http.metrics import Metrics
from specdec.runtime.serving.http.wire import ChatRequest, CompletionRequest
from tests.runtime.serving.http.conftest import Served, serving

TEXT = (Path(__file__).parents[4] / "docs" / "serving.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def named(title: str) -> set[str]:
    """What stands between backquotes in the first cells of a section's tables."""
    cells = re.findall(r"^\| (.*?) \|", section(title), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_the_threads_program(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(package.parent)
    names: dict[str, list[str]] = {}
    exec(PROGRAMS[0].replace('"my-package"', '"alphabet"').replace('"Four"', '"r"'), names)
    assert [len(text) for text in names["texts"]] == [21, 11, 21]
    assert names["texts"][0] == ascii_lowercase[5:]  # after "One"
    assert capsys.readouterr().out == "stuvwxyz"


def test_the_asyncio_program(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(package.parent)
    exec(PROGRAMS[1].replace('"my-package"', '"alphabet"'), {})
    assert capsys.readouterr().out.endswith(("stop\n", "length\n"))


def test_the_client_program(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openai", reason="the client is not installed")
    with serving(package) as served:
        program = PROGRAMS[2].replace("http://127.0.0.1:8000", served.url)
        exec(program.replace('"my-package"', '"alphabet"'), {})
    assert "'tokens_per_round'" in capsys.readouterr().out


def test_every_option_of_the_command_is_named() -> None:
    options = {max(option.opts, key=len) for option in command.params if option.opts[0][0] == "-"}
    told = {name.split(" ")[0] for name in named("The command") if name.startswith("--")}
    assert told == options - {"--completion", "--version"}


def test_every_field_is_named_and_no_other() -> None:
    fields = {*ChatRequest.model_fields, *CompletionRequest.model_fields} - {"model"}
    told = named("Fields of a request") - {"extra_body", "stream_options.include_usage"}
    assert told | {"stream_options"} == fields


def test_every_metric_is_named_and_no_other(served: Served) -> None:
    families = Metrics(served.decoder).registry.collect()
    counted = {"counter": "_total"}
    real = {
        family.name.removeprefix("specdec_") + counted.get(family.type, "") for family in families
    }
    told = {name.split("{")[0] for name in named("Metrics")} - {"specdec_"}
    assert told == real
