"""libspecdec.so from C and C++: every function, every misuse, and a host left as it was."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from specdec.engines.package.files import hash_file
from specdec.runtime import SamplingParams
from specdec.runtime.embed.builder import NATIVE, declarations
from specdec.runtime.embed.documents import read_request
from specdec.runtime.embed.errors import EmbedError
from specdec.runtime.errors import SpecdecError
from tests.hostile.tokenizers import REFUSED
from tests.runtime.embed.conftest import ROOT, Run, call

ERRORS = {
    "abi": 52,
    "missing package": 10,
    "null path": 51,
    "null out": 51,
    "bad load option": 31,
    "bad device": 23,
    "too many threads": 30,
    "a flag that is none": 30,
    "NUL in a path": 20,
    "NUL in a name": 30,
    "bad json": 51,
    "null engine": 51,
    "open": 0,
    "bad option": 31,
    "bad value": 30,
    "twice": 51,
    "not an object": 51,
    "not utf-8": 51,
    "empty prompt": 32,
    "bad kind": 51,
    "null data": 51,
    "bad messages": 51,
    "half a pair": 32,
    "huge id": 30,
    "tools": 32,
    "bad token": 32,
    "null prompt": 51,
    "null info": 51,
    "still works": 0,
    "session": 0,
    "other session": 0,
    "null handle": 50,
    "foreign handle": 50,
    "other kind": 50,
    "session close": 0,
    "session closed": 35,
    "close": 0,
    "closed handle": 35,
    "double close": 35,
    "cancel closed": 35,
    "session of closed": 35,
}


def test_every_misuse_has_its_code_and_a_message(run: Run, alphabet: Path) -> None:
    lines = run("errors", alphabet).splitlines()
    found = dict(re.match(r"([^:]+): (.*)", line).groups() for line in lines)  # type: ignore[union-attr]
    assert {name: int(rest.split()[0]) for name, rest in found.items()} == ERRORS
    assert all(len(rest.split()) > 4 for rest in found.values() if not rest.startswith("0"))
    assert "max_new_tokens" in found["bad option"]
    assert "/nowhere/at all" in found["missing package"]


@pytest.mark.parametrize("name", ["bad charsmap", "post-processor names an absent token"])
def test_a_hostile_tokenizer_has_a_code_and_prints_nothing(
    run: Run, alphabet: Path, tmp_path: Path, name: str
) -> None:
    """The program goes on after the failure to open, and finds no decoder."""
    package = Path(shutil.copytree(alphabet, tmp_path / "package"))
    parts, reason = REFUSED[name]
    path = package / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **parts}))
    manifest = json.loads((package / "specdec.json").read_text("utf-8"))
    found = hash_file(path)
    manifest["files"]["tokenizer.json"] = {"size": found.size, "sha256": found.sha256}
    (package / "specdec.json").write_text(json.dumps(manifest))
    lines = run("errors", package).splitlines()
    (opened,) = [line for line in lines if line.startswith("open: ")]
    assert opened.startswith("open: 10 ")
    assert reason in opened


def test_the_host_finds_its_process_as_it_was(run: Run, alphabet: Path) -> None:
    lines = run("hygiene", alphabet).splitlines()
    assert lines == [
        "early child: 0",
        "child: 54",
        "child open: 54",
        "late child: 0",
        "parent: def",
    ]


def test_callbacks_may_cancel_throw_and_come_back(run: Run, alphabet: Path) -> None:
    assert run("callbacks", alphabet).splitlines() == [
        "text bcdefghijklmnopqrstu ids 1 drafted 1 reason 2",
        "cancelled: calls 1 reason 4 rounds 1",
        "rethrown: of the host",
        "as a status: 53 of the host",
        "through C: 53 the callback threw an exception: an exception of unknown type",
        "reentered: 33 33 33 33",
        "moved: 0 1",
        "next turn: z",
        "forgotten: l",
        "after: def",
    ]


def test_engines_of_the_host(run: Run) -> None:
    lines = run("engines").splitlines()
    assert lines[:2] == ["ids 4 5 6 7 8 9 0 reason 1 acceptance 1", "lock released: 1"]
    assert [int(line.split()[1].rstrip(":")) for line in lines[2:5]] == [20, 53, 20]
    assert "out of memory bandwidth" in lines[3]
    assert lines[5:] == ["text: 32", "closed 1 1", "wrong: 51"]


def test_plain_c(run: Run, alphabet: Path) -> None:
    assert run("plain_c", alphabet).splitlines() == [
        "template 1 length 300000",
        "defg = defg, 4 tokens, 1",
        "from ids: 0 logprobs 1",
        "from messages: z reason 1",
    ]


def test_a_plug_in_host_may_close_and_open_the_library(
    run: Run, installed: Path, alphabet: Path
) -> None:
    lines = run("unload", installed / "lib/libspecdec.so", alphabet).splitlines()
    assert lines == ["close 0", "dlclose 0", "still there 1"] * 2


@pytest.mark.parametrize("program", ["options", "options20"])
def test_the_builder_knows_every_option(run: Run, program: str) -> None:
    full, empty = run(program).splitlines()
    request = read_request("", full.encode())
    assert request.params == SamplingParams(
        max_new_tokens=12345,
        min_new_tokens=2,
        temperature=0.1,
        top_k=40,
        top_p=0.95,
        min_p=0.05,
        repetition_penalty=1.1,
        presence_penalty=-0.5,
        frequency_penalty=0.25,
        no_repeat_ngram_size=3,
        logit_bias={7: float("-inf"), 9: 1.5},
        stop=("\n\n", '"end"\\', "ä"),
        stop_token_ids=(3, 4),
        ignore_eos=True,
        seed=2**64 - 1,
        logprobs=5,
        num_draft_tokens=6,
        draft_temperature=1e-3,
        verify="token",
        skip_special_tokens=False,
        truncate_prompt="left",
    )
    for field in fields(SamplingParams):  # a new option needs a line in the builder
        assert field.default is not MISSING
        assert getattr(request.params, field.name) != field.default
    assert request.tools == [{"name": "look"}]
    assert request.chat_template_kwargs == {"enable_thinking": False}
    assert request.over_defaults is not None
    assert request.over_defaults["top_p"] == 0.95
    assert request.reuse_prefix
    assert json.loads(empty) == {}


def test_the_codes_of_the_header_are_those_of_the_errors() -> None:
    text = declarations(NATIVE / "specdec.h", "types")
    codes = {name: int(code) for name, code in re.findall(r"SPECDEC_(\w+) = (\d+)", text)}
    classes = {cls.__name__: cls.code for cls in _below(SpecdecError)}
    inside = {c for name, c in classes.items() if name not in ("BuildError", "EmbedError")}
    assert inside >= {1, 2, 10, 11, 12, 20, 21, 22, 23, 30, 31, 32, 33, 34, 35, 50, 51, 53}
    for name, code in classes.items():
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Error")).upper()
        if name == "SpecdecError":
            words = "ERROR"
        if words in codes:
            assert codes[words] == code, name
    assert {code for name, code in codes.items() if code >= 10} <= inside | {52, 54, 55, 99}
    assert EmbedError.code not in codes.values()


def test_only_the_interface_is_exported(installed: Path) -> None:
    done = subprocess.run(
        ["nm", "-D", "--defined-only", "-C", str(installed / "lib/libspecdec.so")],
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.split(maxsplit=2)[2] for line in done.stdout.splitlines()}
    header = (installed / "include/specdec.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"SPECDEC_API [^;(]*?\b(specdec_\w+)\(", header))
    own = {name for name in names if not name.startswith(("std::", "PyInit_"))}
    assert {name.split("(")[0] for name in own if "std::" not in name} == declared
    assert len(declared) == 16


def test_memcheck_finds_nothing(programs: Path, alphabet: Path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    out = call(ROOT / "scripts/memcheck.sh", programs / "callbacks", alphabet, timeout=600)
    assert out.endswith("after: def\n")


def _below(cls: type[SpecdecError]) -> list[type[SpecdecError]]:
    found = [cls]
    for child in cls.__subclasses__():
        if child.__module__.startswith(("specdec.runtime", "specdec.engines")):
            found += _below(child)
    return found
