"""The sampling options of a command line, one per field of `SamplingParams`.

Defaults and limits live in `SamplingParams` alone: an option that is not given is not passed,
and a value that is not allowed is refused there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from specdec.cli.options.given import check_effect
from specdec.cli.options.table import row, with_options

if TYPE_CHECKING:
    from specdec.runtime import SamplingParams

__all__ = ["LAW", "TEXT", "given_law", "law_options", "sampling_options", "sampling_params"]


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


LAW = {
    "temperature": row("--temperature", type=float, help="0 takes the likeliest token. [0]"),
    "top_k": row("--top-k", type=int, help="Sample from the k likeliest tokens."),
    "top_p": row("--top-p", type=float, help="Sample from the smallest set of this probability."),
    "min_p": row("--min-p", type=float, help="Drop tokens below this part of the likeliest."),
    "repetition_penalty": row(
        "--repetition-penalty", type=float, help="On tokens of prompt and output."
    ),
    "presence_penalty": row("--presence-penalty", type=float, help="Once per token of the output."),
    "frequency_penalty": row(
        "--frequency-penalty", type=float, help="Per occurrence in the output."
    ),
    "no_repeat_ngram_size": row(
        "--no-repeat-ngram-size", type=int, help="Never repeat n tokens in a row."
    ),
    "logit_bias": row(
        "--logit-bias",
        metavar="ID=BIAS",
        type=_bias,
        multiple=True,
        help="Added to a token's logit. Repeatable.",
    ),
    "seed": row("--seed", type=int, help="The same seed gives the same text."),
    "num_draft_tokens": row(
        "--num-draft-tokens",
        metavar="N|auto",
        type=_draft_length,
        help="Drafted per round; 0 is plain decoding. [auto]",
    ),
    "draft_temperature": row("--draft-temperature", type=float, help="For the draft alone."),
    "verify": row(
        "--verify",
        type=click.Choice(["block", "token", "coupled"]),
        help="Verification rule; 'coupled' gives a seed's text whatever the draft. [block]",
    ),
}
"""Options that shape the law of the next token, by field."""

TEXT = {
    "max_new_tokens": row(
        "--max-new-tokens", type=int, help="Cut the answer after this many tokens. [128]"
    ),
    "min_new_tokens": row(
        "--min-new-tokens", type=int, help="No end token before this many tokens."
    ),
    "stop": row("--stop", metavar="TEXT", multiple=True, help="End before it. Repeatable."),
    "stop_token_ids": row(
        "--stop-token-id", "stop_token_ids", type=int, multiple=True, help="End. Repeatable."
    ),
    "ignore_eos": row("--ignore-eos", is_flag=True, help="Go on after the model's end tokens."),
    "logprobs": row(
        "--logprobs", type=int, help="Log-probabilities, with N alternatives (--json)."
    ),
    "skip_special_tokens": row(
        "--keep-special-tokens",
        "skip_special_tokens",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Show special tokens in the text.",
    ),
    "truncate_prompt": row(
        "--truncate-prompt",
        type=click.Choice(["left"]),
        help="Drop the oldest tokens of a prompt that is too long, instead of refusing it.",
    ),
}
"""Options about the text and its end, by field."""

law_options = with_options(*LAW.values())
"""Decorates a command with the options of `LAW`."""

sampling_options = with_options(*LAW.values(), *TEXT.values())
"""Decorates a command with every sampling option."""


def sampling_params(values: dict[str, Any]) -> SamplingParams:
    """Take the sampling options out of `values` and validate them.

    Raises:
        InvalidParameterError: a value is not allowed.
        click.UsageError: an option cannot have an effect beside the others.
    """
    from specdec.runtime import SamplingParams

    given = {name: values.pop(name) for name in TEXT}
    given = {name: value for name, value in given.items() if value is not None}
    params = SamplingParams(**given, **given_law(values))
    check_effect(params)
    return params


def given_law(values: dict[str, Any]) -> dict[str, Any]:
    """Take the options of `law_options` that were given out of `values`, unchecked."""
    given = {name: values.pop(name) for name in LAW}
    given["logit_bias"] = dict(given["logit_bias"]) or None
    return {name: value for name, value in given.items() if value is not None}
