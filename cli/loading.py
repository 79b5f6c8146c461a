"""Where and how a package is loaded: the options every command that runs one shares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["DRAFTERS", "load_options", "package_argument"]

DRAFTERS = ("auto", "model", "ngram", "hybrid", "none")

_Function = TypeVar("_Function", bound=Callable[..., Any])

package_argument = click.argument(
    "package", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


def load_options(function: _Function) -> _Function:
    """Decorate a command with `drafter`, `device`, `draft_device`, `threads`, `no_checksums`."""
    for option in (
        click.option(
            "--no-checksums", is_flag=True, help="Load without hashing the package's files."
        ),
        click.option("--threads", type=click.IntRange(min=1), help="CPU threads."),
        click.option("--draft-device", metavar="cpu|cuda:N", help="Of the draft. [the target's]"),
        click.option("--device", metavar="cpu|cuda:N", default="cpu", help="Of the target. [cpu]"),
        click.option("--drafter", type=click.Choice(DRAFTERS), default="auto", show_default=True),
    ):
        function = option(function)
    return function
