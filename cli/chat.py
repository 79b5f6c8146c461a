"""The interactive chat: one line in, one answer out, the conversation kept in a session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdec.cli.common import EXIT_DONE, EXIT_FAILED, fail
from specdec.cli.lines import Lines
from specdec.cli.options.prompts import to_request
from specdec.cli.views.answers import AnswerPrinter

if TYPE_CHECKING:
    from specdec.runtime import SamplingParams, Session, SpeculativeDecoder

__all__ = ["Chat", "converse"]

GREETING = "/help lists the commands; Ctrl-C stops an answer; /exit or Ctrl-D ends"
HELP = """\
/help           this list
/reset          forget the conversation
/system TEXT    start over with this system message; without TEXT show it
/save FILE      write the conversation to FILE as JSON messages
/speed          show the speed after each answer, or stop showing it
/exit           end
//TEXT          say /TEXT"""


def converse(
    decoder: SpeculativeDecoder,
    params: SamplingParams,
    system: str | None,
    tools: list[dict[str, Any]] | None,
    arguments: dict[str, Any] | None,
    printer: AnswerPrinter,
) -> int:
    """Answer lines of stdin until it ends or says `/exit`; return the exit code.

    Ctrl-C while an answer is generated ends the answer and keeps what was said. A line that
    cannot be answered is reported and the chat goes on; the exit code is then 1.
    """
    with decoder.session() as session:
        return Chat(session, params, system, tools, arguments, printer).run()


class Chat:
    """One run of the chat.

    Args:
        session: holds the conversation; left open.
        params: of every answer.
        system: the system message, None for none.
        tools: descriptions for the chat template.
        arguments: further variables of the chat template.
        printer: shows the answers.
    """

    def __init__(
        self,
        session: Session,
        params: SamplingParams,
        system: str | None,
        tools: list[dict[str, Any]] | None,
        arguments: dict[str, Any] | None,
        printer: AnswerPrinter,
    ) -> None:
        self._session = session
        self._params = params
        self._system = system
        self._template: dict[str, Any] = {"tools": tools, "chat_template_kwargs": arguments}
        self._printer = printer
        self._code = EXIT_DONE
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": lambda _: click.echo(HELP, err=True),
            "/reset": lambda _: session.reset(),
            "/system": self._set_system,
            "/save": self._save,
            "/speed": self._toggle_speed,
        }

    def run(self) -> int:
        """Answer until the end; return the exit code."""
        lines = Lines()
        if lines.interactive:
            click.echo(GREETING, err=True)
        while True:
            line = lines.read()
            if line is None or line == "/exit":
                return self._code
            if line.startswith("/") and not line.startswith("//"):
                self._obey(line)
            elif line:
                self._answer(line.removeprefix("/") if line.startswith("//") else line)

    def _answer(self, text: str) -> None:
        from specdec.runtime import PromptError

        opening = None if self._session.messages else self._system
        try:
            request = to_request(text, opening, True)
            self._printer.play(self._session.stream(request, self._params, **self._template))
        except PromptError as error:
            self._fail(str(error))

    def _obey(self, line: str) -> None:
        name, _, argument = line.partition(" ")
        command = self._commands.get(name)
        if command is None:
            self._fail(f"{name} is no command; /help lists them, and //TEXT says /TEXT")
        elif argument and name not in ("/system", "/save"):
            self._fail(f"{name} takes nothing after it")
        else:
            command(argument.strip())

    def _set_system(self, text: str) -> None:
        if text:
            self._system = text
            self._session.reset()
            click.echo("the conversation starts over with this system message", err=True)
        else:
            click.echo(self._system or "no system message", err=True)

    def _save(self, name: str) -> None:
        if not name:
            self._fail("/save needs the name of a file")
            return
        text = json.dumps(list(self._session.messages), ensure_ascii=False, indent=1)
        from specdec.engines.errors import OutputError
        from specdec.engines.storage.writing import write_file

        try:
            write_file(Path(name), text + "\n", replaces=False)
        except OutputError as error:
            self._fail(str(error))
        else:
            click.echo(f"wrote {name}", err=True)

    def _toggle_speed(self, _: str) -> None:
        self._printer.show_speed = not self._printer.show_speed
        shown = "shown" if self._printer.show_speed else "not shown"
        click.echo(f"the speed is {shown} after each answer", err=True)

    def _fail(self, reason: str) -> None:
        fail(reason)
        self._code = EXIT_FAILED
