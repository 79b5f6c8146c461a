"""Declares a command with what all of them have: --help, --version, --completion."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

__all__ = ["completion_variable", "specdec_command"]

SHELLS = ("bash", "zsh", "fish")


def specdec_command(name: str, **attributes: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Decorate a function as the command `name`; further arguments as `click.command`."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        settings = {"help_option_names": ["-h", "--help"]}
        attributes["epilog"] = " ".join(filter(None, [attributes.get("epilog"), _documentation()]))
        made: click.Command = click.command(
            name, cls=click.Command, context_settings=settings, **attributes
        )(function)
        _completion(made)
        _version(made)
        return made

    return decorate


def completion_variable(name: str) -> str:
    """The environment variable by which a shell asks the command `name` to complete a word."""
    return f"_{name.replace('-', '_').upper()}_COMPLETE"


def _documentation() -> str:
    """Where an installed wheel put the pages that messages and --help name."""
    folder = Path(sys.prefix, "share", "doc", "specdec-edge", "docs")
    return f"Documentation: {folder}" if folder.is_dir() else ""


def _print_completion(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is None:
        return
    kind = get_completion_class(shell)
    name = context.command.name
    assert kind is not None, "one of SHELLS"
    assert name is not None
    click.echo(kind(context.command, {}, name, completion_variable(name)).source())
    context.exit()


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from specdec.engines.release import DISTRIBUTION, VERSION

    click.echo(f"{context.command.name} {VERSION} ({DISTRIBUTION})")
    context.exit()


_version = click.option(
    "-V",
    "--version",
    is_flag=True,
    callback=_print_version,
    expose_value=False,
    is_eager=True,
    help="Print the version.",
)
_completion = click.option(
    "--completion",
    type=click.Choice(SHELLS),
    callback=_print_completion,
    expose_value=False,
    is_eager=True,
    help="Print a script that completes this command's options in the shell.",
)
