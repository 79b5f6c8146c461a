"""The chat: its commands over a pipe, and its prompt on a real pseudo-terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
PROGRAM = "from specdec.cli.run import main; main()"
Captured = subprocess.CompletedProcess[str]


def chat(package: Path, lines: str, *arguments: str, cwd: Path | None = None) -> Captured:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(package.resolve()), "--chat", *arguments],
        input=lines,
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


def test_commands(package: Path, tmp_path: Path) -> None:
    lines = "/help\n/system hm\nx\n/system\n/save talk.json\n/save talk.json\n/speed\ny\n//x\n"
    done = chat(package, lines, cwd=tmp_path)
    assert done.stdout == "yz\nz\nyz\n"
    assert "/system TEXT    start over with this system message" in done.stderr
    assert "\nhm\n" in done.stderr
    assert "wrote talk.json" in done.stderr
    assert "error: talk.json is there already; name another file" in done.stderr
    assert done.stderr.count(" tokens/s]") == 2  # of the answers after /speed
    assert done.returncode == 1
    assert json.loads((tmp_path / "talk.json").read_text(encoding="utf-8")) == [
        {"role": "system", "content": "hm"},
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "yz"},
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("/quit", "/quit is no command; /help lists them, and //TEXT says /TEXT"),
        ("/reset now", "/reset takes nothing after it"),
        ("/save", "/save needs the name of a file"),
        ("/save missing/folder/file", "cannot be written: there is no directory"),
    ],
)
def test_a_command_that_is_not_understood(package: Path, line: str, reason: str) -> None:
    done = chat(package, f"{line}\nx\n")
    assert (done.returncode, done.stdout) == (1, "yz\n")
    assert done.stderr.startswith("error: ")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_cut_answer_is_marked(package: Path) -> None:
    done = chat(package, "a\n", "--max-new-tokens", "3")
    assert done.stdout == "bcd\n"
    assert done.stderr == "[cut after 3 tokens; --max-new-tokens N allows more]\n"


class Terminal:
    """What a person at a terminal types and sees."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.shown = ""
        self._seen = 0  # up to the end of what was waited for

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def wait_for(self, text: str) -> None:
        """Read on until `text` has come after what was waited for before."""
        while text not in self.shown[self._seen :]:
            assert self._read(), self.shown
        self._seen = self.shown.index(text, self._seen) + len(text)

    def interrupt_until(self, text: str) -> None:
        """Press Ctrl-C until `text` comes: readline misses a signal just before it waits."""
        for _ in range(10):
            self.type("\x03")
            while self._read(2.0):
                if text in self.shown[self._seen :]:
                    self.wait_for(text)
                    return
        raise AssertionError(f"{text!r} never came after {self.shown!r}")

    def read_to_end(self) -> None:
        while self._read():
            pass

    def _read(self, seconds: float | None = None) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], seconds or 20.0)
        if seconds is not None and not ready:
            return False
        assert ready, f"nothing more came after {self.shown!r}"
        try:
            data = os.read(self._descriptor, 4096)
        except OSError:  # how Linux says that the other side is closed
            return False
        self.shown += data.decode()
        return bool(data)


@contextmanager
def terminal(package: Path) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(package), "--chat"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: _take_terminal(theirs),
        env={**os.environ, "TERM": "dumb"},
    ) as process:
        os.close(theirs)
        try:
            yield Terminal(ours), process
        finally:
            process.kill()
            os.close(ours)


def _take_terminal(descriptor: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)  # so that ^C becomes a signal


def test_on_a_terminal(package: Path) -> None:
    pytest.importorskip("readline", reason="line editing comes from it")
    with terminal(package) as (screen, process):
        screen.wait_for("/help lists the commands")
        screen.wait_for("> ")
        screen.type("w\n")
        screen.wait_for("xyz")
        screen.wait_for("> ")
        screen.type("half a line")
        screen.wait_for("half a line")  # the echo
        screen.interrupt_until("(Ctrl-D or /exit ends the chat)")  # keeps the conversation
        screen.wait_for("> ")
        screen.type("\x10\n")  # history: the line before, sent again
        screen.wait_for("xyz")
        screen.wait_for("> ")
        screen.type("\x04")
        screen.read_to_end()
        assert process.wait(timeout=30) == 0
    assert screen.shown.endswith("\n")
