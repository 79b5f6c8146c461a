"""One generation on the screen: streamed text or a JSON document, figures on stderr."""

from __future__ import annotations

import json
import math
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from specdec.cli.common import error_console
from specdec.cli.interrupts import Interrupts

if TYPE_CHECKING:
    from specdec.runtime import GenerationResult, GenerationStream, Logprob

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
        click.echo(_document(result) if self._as_json else "")
        if self._show_stats:
            from specdec.cli.stats_table import print_stats

            print_stats(error_console(), result.stats)
        return interrupts.requested


def _document(result: GenerationResult) -> str:
    """Return the result as one line of JSON."""
    document: dict[str, Any] = {
        "text": result.text,
        "token_ids": list(result.token_ids),
        "finish_reason": result.finish_reason,
        "stats": result.stats.to_dict(),
    }
    if result.logprobs is not None:
        document["logprobs"] = [
            {
                **_logprob(entry.chosen),
                "alternatives": [_logprob(other) for other in entry.alternatives],
            }
            for entry in result.logprobs
        ]
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def _logprob(entry: Logprob) -> dict[str, float | None]:
    """Return a token's log-probabilities; JSON has no infinity, an excluded token has null."""
    return {
        "token_id": entry.token_id,
        "raw": _finite(entry.raw),
        "processed": _finite(entry.processed),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
