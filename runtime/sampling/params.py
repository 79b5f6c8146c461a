"""`SamplingParams`: everything one request may ask for, validated once."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Literal

from specdec.runtime.checks import (
    MAX_INTEGER,
    check_bool,
    check_choice,
    check_integer,
    check_real,
    integer_tuple,
    shown,
)
from specdec.runtime.errors import InvalidParameterError, UnsupportedOptionError
from specdec.runtime.sampling.biases import TokenBiases

__all__ = ["MAX_DRAFT_TOKENS", "MAX_LOGPROBS", "SamplingParams", "checked_params"]

MAX_DRAFT_TOKENS = 32
MAX_LOGPROBS = 20
_HUGE = 1e9
_TEMPERATURES = (1e-4, 1e4)


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """What one generation asks for; frozen, and validated in full when made.

    Options apply in this order to each row of logits: logit_bias, repetition_penalty,
    presence_penalty and frequency_penalty, no_repeat_ngram_size, min_new_tokens,
    temperature, top_k, top_p, min_p (see `processing`).

    Raises:
        InvalidParameterError: a value has the wrong type or is out of range.
    """

    max_new_tokens: int = 128
    """Stop after this many new tokens (>= 1)."""
    min_new_tokens: int = 0
    """No end token before this many new tokens. A stop string still ends the text."""
    temperature: float = 0.0
    """0 is greedy (ties go to the lowest id); otherwise 0.0001 .. 10000."""
    top_k: int = 0
    """Keep the k most probable tokens; 0 is off."""
    top_p: float = 1.0
    """Keep the smallest set of tokens with at least this probability; 1 is off."""
    min_p: float = 0.0
    """Drop tokens less probable than this fraction of the most probable one; 0 is off."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of every token of prompt and output."""
    presence_penalty: float = 0.0
    """Subtracted once from the logit of every token of the output (-2 .. 2)."""
    frequency_penalty: float = 0.0
    """Subtracted from the logit once per occurrence in the output (-2 .. 2)."""
    no_repeat_ngram_size: int = 0
    """Ban tokens that would repeat an n-gram of prompt and output; 0 is off."""
    logit_bias: Mapping[int, float] | None = None
    """Added to the logits of these token ids (-1e9 .. 1e9); `-inf` bans a token."""
    stop: tuple[str, ...] = ()
    """The text ends before the first of these strings. A single string is accepted."""
    stop_token_ids: tuple[int, ...] = ()
    """Further end tokens, beside the model's own."""
    ignore_eos: bool = False
    """The model's own end tokens do not end generation (`stop_token_ids` still do)."""
    seed: int | None = None
    """0 .. 2**64 - 1; None takes fresh entropy. With a seed, the same request gives the same
    text; the text may differ between values of `num_draft_tokens` unless verify="coupled"."""
    logprobs: int | None = None
    """Report log-probabilities with this many alternatives beside the chosen token (0 .. 20)."""
    num_draft_tokens: int | Literal["auto"] = "auto"
    """Drafted tokens per round: 0 .. 32, 0 is plain decoding; "auto" follows measured cost."""
    draft_temperature: float | None = None
    """Temperature of the draft alone; None is the same as `temperature`."""
    verify: Literal["block", "token", "coupled"] = "block"
    """Verification rule (see `verify`); all three leave the target's distribution exact."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""
    truncate_prompt: Literal["left"] | None = None
    """"left" drops the oldest prompt tokens when prompt and output exceed the context, and
    keeps at least half a context of prompt; None refuses a prompt longer than the context."""

    def __post_init__(self) -> None:
        self._check_lengths()
        self._check_filters()
        self._check_penalties()
        self._check_stops()
        self._check_drafting()

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> SamplingParams:
        """Build from a mapping, such as a decoded JSON request.

        Raises:
            UnsupportedOptionError: a key is not an option; the message names the nearest one.
            InvalidParameterError: as the constructor.
        """
        if not isinstance(options, Mapping):
            raise InvalidParameterError(
                f"the sampling options are {shown(options)}; allowed is a mapping of names to "
                "values"
            )
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(known)}"
                raise UnsupportedOptionError(f"unknown sampling option {name!r}; {hint}")
        return cls(**options)

    @property
    def greedy(self) -> bool:
        """True when the target's choice is its most probable token."""
        return self.temperature == 0.0

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_lengths(self) -> None:
        self._set(
            "max_new_tokens", check_integer("max_new_tokens", self.max_new_tokens, 1, MAX_INTEGER)
        )
        self._set(
            "min_new_tokens", check_integer("min_new_tokens", self.min_new_tokens, 0, MAX_INTEGER)
        )
        if self.min_new_tokens > self.max_new_tokens:
            raise InvalidParameterError(
                f"min_new_tokens is {self.min_new_tokens}; "
                f"allowed is at most max_new_tokens, {self.max_new_tokens}"
            )
        check_choice("truncate_prompt", self.truncate_prompt, (None, "left"))

    def _check_filters(self) -> None:
        self._set("temperature", _temperature("temperature", self.temperature))
        self._set("top_k", _count("top_k", self.top_k, 0))
        allowed = "a number in 0 .. 1, 0 excluded"
        self._set("top_p", check_real("top_p", self.top_p, math.ulp(0.0), 1.0, allowed))
        self._set("min_p", check_real("min_p", self.min_p, 0.0, 1.0, "a number in 0 .. 1"))

    def _check_penalties(self) -> None:
        allowed = "a number > 0, 1 is off"
        penalty = check_real("repetition_penalty", self.repetition_penalty, 1e-4, _HUGE, allowed)
        self._set("repetition_penalty", penalty)
        for name in ("presence_penalty", "frequency_penalty"):
            value = check_real(name, getattr(self, name), -2.0, 2.0, "a number in -2 .. 2")
            self._set(name, value)
        size = _count("no_repeat_ngram_size", self.no_repeat_ngram_size, 0)
        self._set("no_repeat_ngram_size", size)
        if self.logit_bias is not None:
            self._set("logit_bias", TokenBiases(_biases(self.logit_bias)))

    def _check_stops(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        if not isinstance(stop, (list, tuple)) or not all(isinstance(s, str) and s for s in stop):
            raise InvalidParameterError(
                f"stop is {shown(self.stop)}; allowed is a non-empty string or a list of them"
            )
        self._set("stop", tuple(stop))
        self._set("stop_token_ids", integer_tuple("stop_token_ids", self.stop_token_ids))
        check_bool("ignore_eos", self.ignore_eos)
        check_bool("skip_special_tokens", self.skip_special_tokens)
        if self.seed is not None:
            self._set("seed", check_integer("seed", self.seed, 0, 2**64 - 1))
        if self.logprobs is not None:
            self._set("logprobs", check_integer("logprobs", self.logprobs, 0, MAX_LOGPROBS))

    def _check_drafting(self) -> None:
        wanted: object = self.num_draft_tokens
        if not (isinstance(wanted, str) and wanted == "auto"):
            if isinstance(wanted, str):
                raise InvalidParameterError(
                    f"num_draft_tokens is {wanted!r}; "
                    f"allowed is 'auto' or an integer in 0 .. {MAX_DRAFT_TOKENS}"
                )
            number = check_integer("num_draft_tokens", wanted, 0, MAX_DRAFT_TOKENS)
            self._set("num_draft_tokens", number)
        if self.draft_temperature is not None:
            self._set(
                "draft_temperature", _temperature("draft_temperature", self.draft_temperature)
            )
        check_choice("verify", self.verify, ("block", "token", "coupled"))


def checked_params(params: object) -> SamplingParams:
    """Parameters as they were given, the default ones for None.

    Raises:
        InvalidParameterError: anything else.
    """
    if params is None:
        return SamplingParams()
    if not isinstance(params, SamplingParams):
        hint = "; SamplingParams.from_dict reads a dict" if isinstance(params, Mapping) else ""
        raise InvalidParameterError(
            f"params is {type(params).__name__}; allowed is None or SamplingParams{hint}"
        )
    return params


def _count(name: str, value: object, low: int) -> int:
    return check_integer(name, value, low, MAX_INTEGER)


def _temperature(name: str, value: object) -> float:
    low, high = _TEMPERATURES
    allowed = f"0 (greedy) or a number in {low} .. {high:g}"
    number = check_real(name, value, 0.0, high, allowed)
    if 0.0 < number < low:
        raise InvalidParameterError(f"{name} is {number}; allowed is {allowed}")
    return number


def _biases(value: object) -> dict[int, float]:
    """Token id -> bias, each finite or -inf."""
    if not isinstance(value, Mapping):
        raise InvalidParameterError(
            f"logit_bias is {shown(value)}; allowed is a mapping of token id to number"
        )
    biases: dict[int, float] = {}
    for token, bias in value.items():
        token_id = check_integer("a token id of logit_bias", token, 0, MAX_INTEGER)
        is_number = isinstance(bias, Real) and not isinstance(bias, bool)
        number = _as_float(bias) if is_number else math.nan
        if not (abs(number) <= _HUGE or number == -math.inf):
            raise InvalidParameterError(
                f"logit_bias[{token_id}] is {shown(bias)}; "
                "allowed is a number in -1e9 .. 1e9, or -inf to ban the token"
            )
        biases[token_id] = number
    return biases


def _as_float(value: Real) -> float:
    """As a float; NaN for an integer that is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.nan
