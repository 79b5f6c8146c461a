"""`--tools FILE`: a JSON list that reaches the chat template as it is, in every turn."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from specdec.cli.common import invoke
from specdec.cli.run import command
from tests.cli import alphabet_package

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool.name }}{% endfor %}"
    "{% for message in messages %}{{ message.content }}{% endfor %}"
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnx", reason="builds its graphs with the onnx package")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alphabet_package, "TEMPLATE", TEMPLATE)
        return alphabet_package.write_alphabet_package(tmp_path_factory.mktemp("tools") / "package")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([{"name": "xy"}, {"name": "z"}]), encoding="utf-8")
    return path


def test_once(package: Path, tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(package), "--prompt", "w", "--json", "--tools", str(tools)]
    assert invoke(command, arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["text"] == "xyz"
    assert document["stats"]["prompt_tokens"] == len("xyzw")


def test_in_a_chat_with_its_history(
    package: Path,
    tools: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\ny\n")))
    assert invoke(command, [str(package), "--chat", "--json", "--tools", str(tools)]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["text"], second["text"]) == ("yz", "z")
    assert first["stats"]["prompt_tokens"] == len("xyzx")
    assert second["stats"]["prompt_tokens"] == len("xyzx" + "yz" + "y")


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "is not JSON"), ('{"name": "f"}', "not a list of objects"), ("[1]", "not a list of")],
)
def test_refused_files(
    package: Path,
    tmp_path: Path,
    content: str,
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content, encoding="utf-8")
    assert invoke(command, [str(package), "--prompt", "a", "--tools", str(path)]) == 2
    assert reason in capsys.readouterr().err


def test_no_template_no_tools(
    package: Path, tools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(package), "--prompt", "a", "--raw", "--tools", str(tools)]
    assert invoke(command, arguments) == 2
    assert "--tools needs the chat template, and --raw turns it off" in capsys.readouterr().err
