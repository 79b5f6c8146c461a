"""Names options that were given by hand and can have no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from specdec.runtime import SamplingParams

__all__ = ["check_effect", "given_flags", "refuse_without_effect"]


def given_flags(*names: str) -> list[str]:
    """The flags of those parameters of the running command that its command line holds."""
    context = click.get_current_context()
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]


def refuse_without_effect(reason: str, *names: str) -> None:
    """Refuse those of the parameters that were given.

    Args:
        reason: when they have no effect, such as "without --measure".
        names: of parameters of the running command.

    Raises:
        click.UsageError: one of them is on the command line.
    """
    found = given_flags(*names)
    if found:
        has = "has" if len(found) == 1 else "have"
        raise click.UsageError(f"{', '.join(found)} {has} no effect {reason}; leave it out")


def check_effect(params: SamplingParams) -> None:
    """Refuse sampling options that can have no effect, by the rule of the runtime.

    Raises:
        click.UsageError: one is named, with the reason.
    """
    from specdec.runtime import options_without_effect

    for name, reason in options_without_effect(params).items():
        flag = f"--{name.replace('_', '-')}"
        raise click.UsageError(f"{flag} has no effect {reason}; leave it out, or change the other")
