"""Reads lines of a conversation: edited on a terminal, as they come from a pipe.

Line editing and history are those of the standard library's readline: it is there wherever
Python is, which suits a small box, and a paste of several lines is one line to it. History is
kept for the run only and never written to disk.
"""

from __future__ import annotations

import importlib
import io
import sys

import click

from specdec.cli.options.prompts import MAX_BYTES

__all__ = ["Lines"]


class Lines:
    """The lines of stdin, one at a time."""

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty()
        """Someone sits at a terminal and can be prompted."""
        if not self.interactive:
            return
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="replace")
        try:
            importlib.import_module("readline")  # from now on `input` edits and remembers
        except ImportError:
            click.echo("no readline in this Python: lines cannot be edited", err=True)

    def read(self) -> str | None:
        """Return the next line without spaces around it, None at the end of stdin.

        Ctrl-C on a terminal drops the line that was begun and gives an empty one.

        Raises:
            KeyboardInterrupt: Ctrl-C while reading from a pipe.
            click.UsageError: a line of more than `MAX_BYTES`.
        """
        if not self.interactive:
            data = sys.stdin.buffer.readline(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                raise click.UsageError(f"a turn is larger than {MAX_BYTES} bytes; shorten it")
            return data.decode("utf-8", "replace").strip() if data else None
        try:
            return self._prompt().strip()
        except EOFError:
            click.echo(err=True)  # the shell's prompt starts on a line of its own
            return None
        except KeyboardInterrupt:
            click.echo("\n(Ctrl-D or /exit ends the chat)", err=True)
            return ""

    def _prompt(self) -> str:
        if sys.stdout.isatty():
            return input("> ")
        click.echo("> ", nl=False, err=True)  # stdout holds answers alone
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line
