"""Templates, their variables, model defaults, marks and closed streams, from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from specdec.cli.common import invoke
from specdec.cli.inspector import command as inspect
from specdec.cli.views.answers import AnswerPrinter
from specdec.engines import GenerationEntry, Manifest, inventory, write_manifest
from specdec.runtime import SamplingParams
from tests.cli.alphabet_package import END, write_alphabet_package
from tests.cli.test_run import Runner, run
from tests.support.decoders import pair

__all__ = ["run"]  # the fixture

SHOUT = "{% for m in messages %}{{ m.content }}{% endfor %}{{ letter }}"
PROGRAM = "from specdec.cli.run import main; main()"
BOM = b"\xef\xbb\xbf"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The alphabet package with a second template and defaults of its own."""
    root = write_alphabet_package(tmp_path_factory.mktemp("texts") / "package")
    (root / "additional_chat_templates").mkdir()
    (root / "additional_chat_templates" / "shout.jinja").write_text(SHOUT)
    (root / "additional_chat_templates" / "tool_use.jinja").write_text("{{ tools[0].name }}")
    manifest = Manifest.from_json((root / "specdec.json").read_text())
    named = {name: f"additional_chat_templates/{name}.jinja" for name in ("shout", "tool_use")}
    letter_f = b"abcdefghijklmnopqrstuvwxyz".index(b"f")
    first = _letter_ids(root)
    write_manifest(
        root,
        replace(
            manifest,
            tokenizer=replace(manifest.tokenizer, chat_templates=named),
            files=inventory(root),
            generation=GenerationEntry(
                sampling={"max_new_tokens": 3, "repetition_penalty": 1.5},
                suppress_tokens=(first[letter_f],),
                begin_suppress_tokens=(END,),
                not_honoured=("num_beams",),
            ),
        ),
    )
    return root


def _letter_ids(root: Path) -> list[int]:
    from specdec.runtime.text.codec import TextCodec

    return TextCodec(root / "tokenizer.json").encode("abcdefghijklmnopqrstuvwxyz")


def test_a_template_by_name_with_a_variable(run: Runner, package: Path) -> None:
    named = ["--chat-template", "shout", "--max-new-tokens", "3"]
    assert run(package, "--prompt", "a", *named).out == "bcd\n"
    assert run(package, "--prompt", "a", *named, "--template-arg", 'letter="t"').out == "uvw\n"
    chat = run(package, "--chat", *named, "--template-arg", 'letter="t"', stdin="a\nb\n")
    assert chat.out == "uvw\nuvw\n"


def test_tools_choose_tool_use(run: Runner, package: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_bytes(BOM + b'[{"name": "q"}]')
    ran = run(package, "--prompt", "a", "--tools", tools, "--max-new-tokens", "2")
    assert ran.out == "rs\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--chat-template", "loud"], "chat_template is 'loud'; allowed is default, shout, tool"),
        (["--template-arg", "letter"], "'letter' is not NAME=JSON"),
        (["--template-arg", "letter=t"], "'letter=t' is not NAME=JSON"),
        (["--template-arg", "a=1", "--raw"], "--template-arg needs the chat template"),
        (["--chat-template", "shout", "--raw"], "--chat-template needs the chat template"),
        (["--template-arg", "messages=[]"], "chat_template_kwargs holds messages"),
    ],
)
def test_what_is_refused(run: Runner, package: Path, arguments: list[str], words: str) -> None:
    ran = run(package, "--prompt", "a", *arguments)
    assert ran.code != 0
    assert words in ran.err
    assert ran.out == ""


def test_model_defaults_apply_when_asked_for(run: Runner, package: Path) -> None:
    assert len(run(package, "--prompt", "p").out) == 11  # q .. z
    assert run(package, "--prompt", "p", "--model-defaults").out == "qrs\n"
    more = ["--model-defaults", "--max-new-tokens", "5"]
    assert run(package, "--prompt", "p", *more).out == "qrstu\n"


def test_bans_always_apply(run: Runner, package: Path) -> None:
    # Without f every other letter is as likely; the lowest id wins.
    for drafted in ("0", "4"):
        text = run(package, "--prompt", "c", "--num-draft-tokens", drafted, "--max-new-tokens", "3")
        assert text.out.startswith("de")
        assert "f" not in text.out
    assert run(package, "--prompt", "z", "--json").documents[0]["token_ids"][0] != END


def test_inspect_shows_them(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(inspect, [str(package)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "defaults max_new_tokens 3, repetition_penalty 1.5 (with --model-defaults)" in out
    assert "bans 1 tokens:" in out
    assert f"bans 1 tokens as the first token: {END}" in out
    assert "ignored num_beams of the model's own settings" in out
    assert invoke(inspect, [str(package), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["generation"]["begin_suppress_tokens"] == [END]


def test_a_byte_order_mark_is_no_text(run: Runner, package: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt").write_bytes(BOM + b"w\n")
    ran = run(package, "--prompt-file", tmp_path / "prompt", "--json")
    assert ran.documents[0]["stats"]["prompt_tokens"] == 1
    assert ran.documents[0]["text"] == "xyz"
    assert run(package, "-", stdin="\ufeffw\n").out == "xyz\n"
    assert run(package, "--chat", stdin="\ufeffw\n").out == "xyz\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_truncation_says_what_it_cut(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    decoder, _, _ = pair(max_length=10)
    params = SamplingParams(max_new_tokens=4, truncate_prompt="left")
    AnswerPrinter(as_json, False).play(decoder.stream([1] * 12, params))
    captured = capsys.readouterr()
    cut = "the prompt has 12 tokens: tokens 0 .. 4 were cut, the last 7 are kept"
    assert captured.err.splitlines()[0] == f"note: {cut}"
    assert (f'"prompt_cut": "{cut}"' in captured.out) == as_json


@pytest.mark.parametrize(
    ("closed", "code", "out", "err"),
    [
        ("<&-", 2, "", "Error: stdin is closed; give --prompt TEXT or --prompt-file FILE"),
        (">&-", 1, "", "error: stdout is closed, and there is nowhere to print to"),
        ("2>&-", 0, "xyz\n", ""),
        ("<&- 2>&-", 2, "", ""),
        ("<&- >&- 2>&-", 1, "", ""),
    ],
)
def test_closed_streams(package: Path, closed: str, code: int, out: str, err: str) -> None:
    prompt = "" if closed == "2>&-" else "-"
    if closed == "2>&-":
        prompt = "--prompt w"
    line = f'exec "$0" -c "$1" "$2" {prompt} {closed}'
    ran = subprocess.run(
        ["sh", "-c", line, sys.executable, PROGRAM, str(package)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (code, out)
    assert err in ran.stderr
    assert "Traceback" not in ran.stderr


def test_prompts_need_no_stdin(package: Path) -> None:
    line = 'exec "$0" -c "$1" "$2" --prompt w <&-'
    ran = subprocess.run(
        ["sh", "-c", line, sys.executable, PROGRAM, str(package)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "xyz\n", "")
