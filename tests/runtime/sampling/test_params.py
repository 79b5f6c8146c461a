"""`SamplingParams`: every field is checked once, with what was got and what is allowed."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

from specdec.runtime import InvalidParameterError, SamplingParams, UnsupportedOptionError

BAD = [
    ("max_new_tokens", 0, "an integer in 1 .. 2147483647"),
    ("max_new_tokens", True, "an integer in 1 .. 2147483647"),
    ("max_new_tokens", 1.0, "an integer in 1 .. 2147483647"),
    ("min_new_tokens", -1, "an integer in 0 .. 2147483647"),
    ("min_new_tokens", 129, "at most max_new_tokens, 128"),
    ("temperature", -0.1, "0 (greedy) or a number"),
    ("temperature", math.nan, "0 (greedy) or a number"),
    ("temperature", 1e-9, "0 (greedy) or a number"),
    ("temperature", "hot", "0 (greedy) or a number"),
    ("temperature", True, "0 (greedy) or a number"),
    ("top_k", -1, "an integer in 0 .. 2147483647"),
    ("top_p", 0.0, "a number in 0 .. 1"),
    ("top_p", 1.1, "a number in 0 .. 1"),
    ("min_p", math.inf, "a number in 0 .. 1"),
    ("repetition_penalty", 0.0, "a number > 0"),
    ("presence_penalty", 2.1, "a number in -2 .. 2"),
    ("frequency_penalty", None, "a number in -2 .. 2"),
    ("no_repeat_ngram_size", 1.5, "an integer in 0 .. 2147483647"),
    ("logit_bias", [1], "a mapping"),
    ("logit_bias", {-1: 0.0}, "an integer in 0 .. 2147483647"),
    ("logit_bias", {"1": 0.0}, "an integer in 0 .. 2147483647"),
    ("logit_bias", {1: math.nan}, "-inf to ban"),
    ("logit_bias", {1: math.inf}, "-inf to ban"),
    ("logit_bias", {1: -1e300}, "-1e9 .. 1e9"),
    ("logit_bias", {1: "2"}, "-1e9 .. 1e9"),
    ("stop", "", "a non-empty string"),
    ("stop", ["a", ""], "a non-empty string"),
    ("stop", 5, "a non-empty string"),
    ("stop_token_ids", 5, "a list of token ids"),
    ("stop_token_ids", "12", "a list of token ids"),
    ("stop_token_ids", [1, -2], "an integer in 0 .. 2147483647"),
    ("ignore_eos", 1, "True or False"),
    ("skip_special_tokens", "no", "True or False"),
    ("seed", -1, "an integer in 0"),
    ("seed", 2**64, "an integer in 0"),
    ("logprobs", 21, "an integer in 0 .. 20"),
    ("num_draft_tokens", 33, "an integer in 0 .. 32"),
    ("num_draft_tokens", "many", "'auto' or an integer"),
    ("num_draft_tokens", False, "an integer in 0 .. 32"),
    ("draft_temperature", -1.0, "0 (greedy) or a number"),
    ("verify", "exact", "'block', 'token', 'coupled'"),
    ("truncate_prompt", "right", "None, 'left'"),
]


@pytest.mark.parametrize(("name", "value", "allowed"), BAD)
def test_illegal_values(name: str, value: object, allowed: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        SamplingParams(**{name: value})
    message = str(caught.value)
    assert name.split("[")[0] in message
    assert allowed in message
    assert "\n" not in message
    assert caught.value.code == 30


def test_defaults_are_greedy_with_automatic_drafts() -> None:
    params = SamplingParams()
    assert params.greedy
    assert params.max_new_tokens == 128
    assert params.num_draft_tokens == "auto"
    assert params.verify == "block"


def test_values_are_normalised() -> None:
    params = SamplingParams(
        stop="end",
        stop_token_ids=np.array([3, 4]),
        top_k=np.int64(5),
        temperature=1,
        logit_bias={np.int64(2): -math.inf},
    )
    assert params.stop == ("end",)
    assert params.stop_token_ids == (3, 4)
    assert all(type(token) is int for token in params.stop_token_ids)
    assert type(params.top_k) is int
    assert type(params.temperature) is float
    assert dict(params.logit_bias) == {2: -math.inf}


def test_frozen_and_independent_of_its_arguments() -> None:
    bias = {1: 1.0}
    params = SamplingParams(logit_bias=bias)
    bias[2] = 2.0
    assert dict(params.logit_bias) == {1: 1.0}
    with pytest.raises(FrozenInstanceError):
        params.top_k = 3
    with pytest.raises(TypeError):
        params.logit_bias[3] = 1.0


def test_from_dict() -> None:
    assert SamplingParams.from_dict({"top_k": 3}) == SamplingParams(top_k=3)
    with pytest.raises(UnsupportedOptionError, match="'temprature'; did you mean temperature"):
        SamplingParams.from_dict({"temprature": 1.0})
    with pytest.raises(UnsupportedOptionError, match="'xyz'; allowed: max_new_tokens"):
        SamplingParams.from_dict({"xyz": 1.0})


def test_every_field_is_documented_in_the_design() -> None:
    assert [field.name for field in fields(SamplingParams)] == [
        "max_new_tokens", "min_new_tokens", "temperature", "top_k", "top_p", "min_p",
        "repetition_penalty", "presence_penalty", "frequency_penalty", "no_repeat_ngram_size",
        "logit_bias", "stop", "stop_token_ids", "ignore_eos", "seed", "logprobs",
        "num_draft_tokens", "draft_temperature", "verify", "skip_special_tokens",
        "truncate_prompt",
    ]  # fmt: skip
