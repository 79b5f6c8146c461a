"""The sampling options of a command line, one per field of `SamplingParams`.

Defaults and limits live in `SamplingParams` alone: an option that is not given is not passed,
and a value that is not allowed is refused there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from specdec.runtime import SamplingParams

__all__ = ["given_law", "law_options", "sampling_options", "sampling_params"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _bias(value: str) -> tuple[int, float]:
    """Parse ID=BIAS."""
    token_id, _, bias = value.partition("=")
    try:
        return int(token_id), float(bias)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not ID=BIAS, such as 42=-1.5 or 42=-inf") from None


def _draft_length(value: str) -> int | str:
    """Parse a count; "auto" stays."""
    if value == "auto":
        return value
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a number nor 'auto'") from None


_LAW_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--temperature", type=float, help="0 takes the likeliest token. [0]"),
    click.option("--top-k", type=int, help="Sample from the k likeliest tokens."),
    click.option("--top-p", type=float, help="Sample from the smallest set of this probability."),
    click.option("--min-p", type=float, help="Drop tokens below this part of the likeliest."),
    click.option("--repetition-penalty", type=float, help="On tokens of prompt and output."),
    click.option("--presence-penalty", type=float, help="Once per token of the output."),
    click.option("--frequency-penalty", type=float, help="Per occurrence in the output."),
    click.option("--no-repeat-ngram-size", type=int, help="Never repeat n tokens in a row."),
    click.option(
        "--logit-bias",
        metavar="ID=BIAS",
        type=_bias,
        multiple=True,
        help="Added to a token's logit. Repeatable.",
    ),
    click.option("--seed", type=int, help="The same seed gives the same text."),
    click.option(
        "--num-draft-tokens",
        metavar="N|auto",
        type=_draft_length,
        help="Drafted per round; 0 is plain decoding. [auto]",
    ),
    click.option("--draft-temperature", type=float, help="For the draft alone."),
    click.option(
        "--verify",
        type=click.Choice(["block", "token", "coupled"]),
        help="Verification rule; 'coupled' gives a seed's text whatever the draft. [block]",
    ),
]
_TEXT_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--max-new-tokens", type=int, help="Stop after this many tokens. [128]"),
    click.option("--min-new-tokens", type=int, help="No end token before this many tokens."),
    click.option("--stop", metavar="TEXT", multiple=True, help="End before it. Repeatable."),
    click.option(
        "--stop-token-id", "stop_token_ids", type=int, multiple=True, help="End. Repeatable."
    ),
    click.option("--ignore-eos", is_flag=True, help="Go on after the model's end tokens."),
    click.option("--logprobs", type=int, help="Log-probabilities, with N alternatives (--json)."),
    click.option("--keep-special-tokens", is_flag=True, help="Show special tokens in the text."),
    click.option(
        "--truncate-prompt",
        type=click.Choice(["left"]),
        help="Drop the oldest tokens of a prompt that is too long, instead of refusing it.",
    ),
]
_LAW_NAMES = (
    *("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty"),
    *("frequency_penalty", "no_repeat_ngram_size", "seed", "num_draft_tokens"),
    *("draft_temperature", "verify"),
)
_TEXT_NAMES = (
    *("max_new_tokens", "min_new_tokens", "stop", "stop_token_ids", "ignore_eos", "logprobs"),
    "truncate_prompt",
)


def sampling_options(function: _Function) -> _Function:
    """Decorate a command with every sampling option."""
    return law_options(_decorate(function, _TEXT_OPTIONS))


def law_options(function: _Function) -> _Function:
    """Decorate a command with the options that shape the law of the next token."""
    return _decorate(function, _LAW_OPTIONS)


def sampling_params(values: dict[str, Any]) -> SamplingParams:
    """Take the sampling options out of `values` and validate them.

    Raises:
        InvalidParameterError: a value is not allowed.
    """
    from specdec.runtime import SamplingParams

    given = {name: values.pop(name) for name in _TEXT_NAMES}
    if values.pop("keep_special_tokens"):
        given["skip_special_tokens"] = False
    given = {name: value for name, value in given.items() if value is not None}
    return SamplingParams(**given, **given_law(values))


def given_law(values: dict[str, Any]) -> dict[str, Any]:
    """Take the options of `law_options` that were given out of `values`, unchecked."""
    given = {name: values.pop(name) for name in _LAW_NAMES}
    given["logit_bias"] = dict(values.pop("logit_bias")) or None
    return {name: value for name, value in given.items() if value is not None}


def _decorate(function: _Function, options: list[Callable[[Any], Any]]) -> _Function:
    for option in reversed(options):
        function = option(function)
    return function
