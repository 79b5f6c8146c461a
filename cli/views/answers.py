"""One generation on the screen: streamed text or a JSON document, figures on stderr."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import click

from specdec.cli.common import error_console
from specdec.cli.interrupts import Interrupts

if TYPE_CHECKING:
    from specdec.runtime import GenerationResult, GenerationStream

__all__ = ["AnswerPrinter"]


class AnswerPrinter:
    """Plays streams and prints them.

    Args:
        as_json: one JSON document per answer and line instead of the text while it comes.
        show_stats: a table of figures on stderr after each answer.
    """

    def __init__(self, as_json: bool, show_stats: bool) -> None:
        self._as_json = as_json
        self._show_stats = show_stats

    def play(self, stream: GenerationStream) -> bool:
        """Run a generation to its end or until Ctrl-C; True when it was interrupted."""
        with closing(stream), Interrupts(stream.cancel) as interrupts:
            for chunk in stream:
                if chunk.text and not self._as_json:
                    click.echo(chunk.text, nl=False)  # flushes, in a pipe too
        result = stream.result
        assert result is not None, "a closed stream has a result"
        click.echo(_json(result) if self._as_json else "")
        if result.prompt_cut is not None:
            click.echo(f"note: {result.prompt_cut}", err=True)
        if self._show_stats:
            from specdec.cli.views.stats import print_stats

            print_stats(error_console(), result.stats)
        return interrupts.requested


def _json(result: GenerationResult) -> str:
    """Return the result as one line of JSON."""
    return json.dumps(result.to_dict(), ensure_ascii=False, allow_nan=False)
