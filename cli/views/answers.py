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
        total: how many answers will come; with several, each text has a heading.
    """

    def __init__(self, as_json: bool, show_stats: bool, total: int = 1) -> None:
        self._as_json = as_json
        self._show_stats = show_stats
        self._total = total
        self._played = 0
        self.show_speed = False
        """A line with the speed on stderr after each answer."""

    def play(self, stream: GenerationStream) -> bool:
        """Run a generation to its end or until Ctrl-C; True when it was interrupted."""
        self._print_heading()
        with closing(stream), Interrupts(stream.cancel) as interrupts:
            for chunk in stream:
                if chunk.text and not self._as_json:
                    click.echo(chunk.text, nl=False)  # flushes, in a pipe too
        result = stream.result
        assert result is not None, "a closed stream has a result"
        click.echo(_json(result) if self._as_json else "")
        if result.prompt_cut is not None:
            click.echo(f"note: {result.prompt_cut}", err=True)
        if not self._as_json:
            _print_cut(result)
        if self._show_stats:
            from specdec.cli.views.stats import print_stats

            print_stats(error_console(), result.stats, result.finish_reason)
        elif self.show_speed:
            stats = result.stats
            click.echo(
                f"[{stats.new_tokens} tokens, {stats.tokens_per_second:.1f} tokens/s]", err=True
            )
        return interrupts.requested

    def _print_heading(self) -> None:
        """A line above each of several texts, in the form `head` uses for several files."""
        self._played += 1
        if self._total > 1 and not self._as_json:
            blank = "\n" if self._played > 1 else ""
            click.echo(f"{blank}==> answer {self._played} of {self._total} <==")


def _print_cut(result: GenerationResult) -> None:
    """Say that an answer did not end by itself."""
    count = len(result.token_ids)
    if result.finish_reason == "length":
        click.echo(f"[cut after {count} tokens; --max-new-tokens N allows more]", err=True)
    elif result.finish_reason == "context":
        click.echo(f"[cut after {count} tokens: the model's context is full]", err=True)


def _json(result: GenerationResult) -> str:
    """Return the result as one line of JSON."""
    return json.dumps(result.to_dict(), ensure_ascii=False, allow_nan=False)
