"""The sampling options that come with a model, where the command line says nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from specdec.runtime import SamplingParams
    from specdec.runtime.sampling.defaults import ModelDefaults

__all__ = ["model_defaults_option", "over_defaults"]

model_defaults_option = click.option(
    "--model-defaults",
    is_flag=True,
    help="Start from the sampling options that the model's authors chose.",
)


def over_defaults(defaults: ModelDefaults, params: SamplingParams) -> SamplingParams:
    """The options of the running command, with the model's own for those that were not given.

    Raises:
        InvalidParameterError: they do not go together.
    """
    context = click.get_current_context()
    missing = {
        name: value
        for name, value in defaults.sampling.items()
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE
    }
    return replace(params, **missing)
