"""`specdec-run` on a real package whose answers are known: it recites the alphabet."""

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from specdec.cli.common import invoke
from specdec.cli.run import command
from tests.cli.alphabet_package import write_alphabet_package

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
ANSWERS = ("yz", "wxyz", "xyz", "vwxyz")


class Ran:
    """Exit code and output of one call."""

    def __init__(self, code: int, captured: Any) -> None:
        self.code, self.out, self.err = code, captured.out, captured.err

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Runner:
    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *arguments: str | Path, stdin: str = "") -> Ran:
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        return Ran(invoke(command, [str(a) for a in arguments]), self._capsys.readouterr())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Runner:
    return Runner(capsys, monkeypatch)


class TestOnce:
    def test_text_and_nothing_else(self, run: Runner, package: Path) -> None:
        ran = run(package, "--prompt", "a")
        assert (ran.code, ran.out, ran.err) == (0, f"{ALPHABET[1:]}\n", "")

    def test_characters_of_two_tokens(self, run: Runner, package: Path) -> None:
        assert run(package, "--prompt", "ä").out == f"ö{ALPHABET}\n"

    def test_every_source_of_prompts(self, run: Runner, package: Path, tmp_path: Path) -> None:
        (tmp_path / "prompt").write_text("w\n")
        files = ["--prompt-file", str(tmp_path / "prompt")]
        ran = run(package, "-", "--prompt", "x", *files, "--prompt", "v", stdin="u\n")
        answers = [f"==> answer {i + 1} of 4 <==\n{a}\n" for i, a in enumerate(ANSWERS)]
        assert ran.out == "\n".join(answers)

    def test_json(self, run: Runner, package: Path) -> None:
        ran = run(package, "--prompt", "x", "--prompt", "ä", "--json", "--max-new-tokens", "4")
        assert ran.code == 0
        first, second = ran.documents
        assert (first["text"], first["finish_reason"]) == ("yz", "stop")
        assert len(first["token_ids"]) == 3
        assert first["stats"]["new_tokens"] == 3
        assert (second["text"], second["finish_reason"]) == ("öab", "length")
        assert "logprobs" not in first
        assert "\\u" not in ran.out

    def test_logprobs(self, run: Runner, package: Path) -> None:
        ran = run(package, "--prompt", "x", "--json", "--logprobs", "1")
        entries = ran.documents[0]["logprobs"]
        assert [e["token_id"] for e in entries] == ran.documents[0]["token_ids"]
        assert all(-0.1 < e["raw"] < 0 and e["processed"] == 0 for e in entries)
        others = [other for e in entries for other in e["alternatives"]]
        assert [other["processed"] for other in others] == [None] * 3  # greedy excludes them

    @pytest.mark.parametrize("drafter", ["auto", "model", "ngram", "hybrid", "none"])
    def test_drafters_change_nothing(self, run: Runner, package: Path, drafter: str) -> None:
        ran = run(package, "--prompt", "abcabca", "--drafter", drafter)
        assert (ran.code, ran.out) == (0, f"{ALPHABET[1:]}\n")

    def test_a_wrong_draft_is_corrected(self, run: Runner, package: Path) -> None:
        ran = run(package, "--prompt", "a", "--json", "--num-draft-tokens", "4")
        assert ran.documents[0]["text"] == ALPHABET[1:]
        assert ran.documents[0]["stats"]["acceptance_rate"] < 1

    def test_sampling_options_arrive(self, run: Runner, package: Path) -> None:
        ran = run(package, "--prompt", "a", "--stop", "k", "--stop", "op")
        assert ran.out == "bcdefghij\n"
        unlikely = ["--logit-bias", f"{run_id(run, package, 'c')}=-inf", "--max-new-tokens", "1"]
        assert run(package, "--prompt", "b", *unlikely).out != "c\n"
        seeds = ["--temperature", "5", "--max-new-tokens", "8", "--json", "--seed", "3"]
        first, second = (run(package, "--prompt", "a", *seeds).documents[0] for _ in range(2))
        assert first["token_ids"] == second["token_ids"]

    def test_special_tokens_on_demand(self, run: Runner, package: Path) -> None:
        assert run(package, "--prompt", "y", "--keep-special-tokens").out == "z<end>\n"

    def test_stats_go_to_stderr(self, run: Runner, package: Path) -> None:
        ran = run(package, "--prompt", "a", "--stats", "--num-draft-tokens", "2")
        assert ran.out == f"{ALPHABET[1:]}\n"
        assert "1 in, 26 out" in ran.err
        assert "tokens/s" in ran.err
        assert "evaluated" in ran.err

    def test_the_template_and_raw(self, run: Runner, package: Path, tmp_path: Path) -> None:
        def prompt_tokens(*arguments: str) -> int:
            ran = run(package, "--json", *arguments)
            return int(ran.documents[0]["stats"]["prompt_tokens"])

        assert prompt_tokens("--prompt", "a", "--system", "be kind") == 8
        plain = write_alphabet_package(tmp_path / "plain", chat_template=False)
        assert run(plain, "--prompt", "a").out == f"{ALPHABET[1:]}\n"
        assert run(package, "--prompt", "a", "--raw").out == f"{ALPHABET[1:]}\n"

    def test_an_untruncated_prompt_is_refused(self, run: Runner, package: Path) -> None:
        ran = run(package, "-", stdin="a" * 300_001)
        assert ran.code == 1
        assert ran.out == ""
        assert ran.err.startswith("error: the prompt has 300001 tokens")
        assert ran.err.count("\n") == 1


def run_id(run: Runner, package: Path, letter: str) -> int:
    """Token id of a letter: what the target puts after the letter before it."""
    ran = run(package, "--prompt", chr(ord(letter) - 1), "--max-new-tokens", "1", "--json")
    return int(ran.documents[0]["token_ids"][0])


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ([], "no prompt"),
            (["--prompt", ""], "prompt of --prompt is empty"),
            (["--prompt", "a", "--top-p", "2"], "top_p"),
            (["--prompt", "a", "--max-new-tokens", "0"], "max_new_tokens"),
            (["--prompt", "a", "--logprobs", "2"], "add --json"),
            (["--chat", "--prompt", "a"], "--chat reads its turns from stdin"),
            (["--chat", "--raw"], "--chat reads its turns from stdin"),
            (["--prompt", "a", "--raw", "--system", "s"], "--raw turns it off"),
            (["--prompt-file", "missing"], "'missing' does not exist"),
            (["--prompt", "a", "--drafter", "none", "--num-draft-tokens", "3"], "no drafter"),
            (["--prompt", "a", "--num-threads", "0"], "0 is not in the range"),
            (["--prompt", "a", "extra"], "'extra' is not"),
        ],
    )
    def test_usage(self, run: Runner, package: Path, arguments: list[str], reason: str) -> None:
        ran = run(package, *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert reason in ran.err

    def test_no_template_no_chat(self, run: Runner, tmp_path: Path) -> None:
        plain = write_alphabet_package(tmp_path / "plain", chat_template=False)
        ran = run(plain, "--chat")
        assert ran.code == 2
        assert "--chat needs the chat template" in ran.err
        assert run(plain, "--prompt", "a", "--system", "s").code == 2

    def test_not_a_package(self, run: Runner, tmp_path: Path) -> None:
        assert run(tmp_path / "missing", "--prompt", "a").code == 2
        ran = run(tmp_path, "--prompt", "a")
        assert ran.code == 1
        assert ran.err.startswith("error: ")
        assert ran.err.count("\n") == 1

    def test_an_altered_file(self, run: Runner, tmp_path: Path) -> None:
        package = write_alphabet_package(tmp_path / "package")
        template = package / "chat_template.jinja"
        template.write_text(template.read_text().replace("content", "CONTENT"))
        ran = run(package, "--prompt", "a")
        assert ran.code == 1
        assert "chat_template.jinja" in ran.err
        assert run(package, "--prompt", "a", "--raw", "--no-checksums").code == 0

    def test_an_unknown_device(self, run: Runner, package: Path) -> None:
        ran = run(package, "--prompt", "a", "--device", "tpu")
        assert ran.code == 1
        assert "tpu" in ran.err


class TestChat:
    def test_a_conversation(self, run: Runner, package: Path) -> None:
        turns = "a\n\n  y  \n/reset\nx\n/exit\nnever\n"
        ran = run(package, "--chat", "--json", "--system", "hm", stdin=turns)
        assert (ran.code, ran.err) == (0, "")
        first, second, third = ran.documents
        assert [d["text"] for d in ran.documents] == [ALPHABET[1:], "z", "yz"]
        assert first["stats"]["prompt_tokens"] == len("hm" + "a")
        assert second["stats"]["prompt_tokens"] == len("hm" + "a" + ALPHABET[1:] + "y")
        assert third["stats"]["prompt_tokens"] == len("hm" + "x")

    def test_text_and_the_end_of_stdin(self, run: Runner, package: Path) -> None:
        ran = run(package, "--chat", stdin="w\nx")
        assert (ran.code, ran.out, ran.err) == (0, "xyz\nyz\n", "")

    def test_a_line_that_is_too_long_does_not_end_it(self, run: Runner, package: Path) -> None:
        ran = run(package, "--chat", stdin="a" * 300_001 + "\nx\n")
        assert (ran.code, ran.out) == (1, "yz\n")
        assert ran.err.startswith("error: the prompt has 300001 tokens")


ENDLESS = ["--ignore-eos", "--max-new-tokens", "290000", "--num-draft-tokens", "0"]


def start(package: Path, *arguments: str) -> subprocess.Popen[bytes]:
    program = "from specdec.cli.run import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, str(package), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )


class TestProcess:
    def test_streams_into_a_pipe_and_stops_at_ctrl_c(self, package: Path) -> None:
        with start(package, "--prompt", "a", *ENDLESS) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            head = process.stdout.read(100)  # before the end: flushed chunk by chunk
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
            assert process.stderr.read() == b""
        assert process.returncode == 130
        text = (head + rest).decode()
        assert text.endswith("\n")
        assert text[:-1] == recited(len(text) - 1)
        assert len(text) < 290_000

    def test_ctrl_c_with_json(self, package: Path) -> None:
        # The end of the first prompt says that the second, endless one has begun.
        prompts = ["--prompt", "ä", "--prompt", "a", "--stop", "öa"]
        with start(package, *prompts, *ENDLESS, "--json") as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["text"] == ""
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            document = json.loads(process.stdout.read())
        assert process.returncode == 130
        assert document["finish_reason"] == "cancelled"
        assert document["text"] == recited(len(document["text"]))
        assert len(document["token_ids"]) == document["stats"]["new_tokens"]

    def test_ctrl_c_in_a_chat_ends_the_answer_only(self, package: Path) -> None:
        with start(package, "--chat", *ENDLESS) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"a\n")
            process.stdin.flush()
            assert process.stdout.read(30) == recited(30).encode()
            process.send_signal(signal.SIGINT)
            process.stdout.readline()
            process.stdin.write(b"/exit\n")
            process.stdin.close()
            assert process.stdout.read() == b""
        assert process.returncode == 0

    def test_a_reader_that_goes_away(self, package: Path) -> None:
        with start(package, "--prompt", "ä", *ENDLESS) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read(4).decode() == "öab"
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 0


def recited(count: int) -> str:
    """The first characters after "a" when end tokens (no text) do not end it."""
    return (ALPHABET[1:] + ALPHABET * math.ceil(count / 26))[:count]
