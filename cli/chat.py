"""The interactive chat: one line in, one answer out, the conversation kept in a session."""

from __future__ import annotations

import codecs
import sys
from typing import TYPE_CHECKING, Any

import click

from specdec.cli.common import EXIT_DONE, EXIT_FAILED, fail
from specdec.cli.options.prompts import to_request
from specdec.cli.views.answers import AnswerPrinter

if TYPE_CHECKING:
    from specdec.runtime import SamplingParams, SpeculativeDecoder

__all__ = ["converse"]


def converse(
    decoder: SpeculativeDecoder,
    params: SamplingParams,
    system: str | None,
    tools: list[dict[str, Any]] | None,
    arguments: dict[str, Any] | None,
    printer: AnswerPrinter,
) -> int:
    """Answer lines of stdin until it ends or says `/exit`; return the exit code.

    `/reset` forgets the conversation. Ctrl-C while an answer is generated ends the answer and
    keeps what was said. A line that cannot be answered is reported and the chat goes on.
    """
    code = EXIT_DONE
    while True:  # one conversation a pass
        opening = system
        with decoder.session() as session:
            while True:
                line = _read_line()
                if line is None or line == "/exit":
                    return code
                if line == "/reset":
                    break
                if not line:
                    continue
                try:
                    request = to_request(line, opening, True)
                    stream = session.stream(
                        request, params, tools=tools, chat_template_kwargs=arguments
                    )
                    printer.play(stream)
                    opening = None
                except _prompt_error() as error:
                    fail(str(error))
                    code = EXIT_FAILED


def _read_line() -> str | None:
    """Return the next line without spaces around it, None at the end of stdin."""
    if sys.stdin is None:
        raise click.UsageError("stdin is closed; --chat reads its turns from there")
    if sys.stdin.isatty():
        click.echo("> ", nl=False, err=True)
    data = sys.stdin.buffer.readline().removeprefix(codecs.BOM_UTF8)
    return data.decode("utf-8", "replace").strip() if data else None


def _prompt_error() -> type[Exception]:
    from specdec.runtime import PromptError

    return PromptError
