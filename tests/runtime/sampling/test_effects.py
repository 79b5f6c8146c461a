"""Which sampling options cannot matter, against what generations really do."""

from __future__ import annotations

import pytest

from specdec.runtime import SamplingParams, options_without_effect
from tests.support.decoders import pair


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, []),
        ({"top_p": 0.9}, ["top_p"]),
        ({"seed": 0, "verify": "coupled"}, ["seed", "verify"]),
        ({"top_p": 0.9, "seed": 1, "temperature": 0.5}, []),
        ({"num_draft_tokens": 0, "temperature": 1.0, "verify": "token"}, ["verify"]),
        ({"num_draft_tokens": 0, "temperature": 1.0, "verify": "coupled"}, []),
        (
            {"num_draft_tokens": 0, "temperature": 1.0, "draft_temperature": 0.5},
            ["draft_temperature"],
        ),
        ({"min_new_tokens": 3, "ignore_eos": True}, ["min_new_tokens"]),
        ({"min_new_tokens": 3, "ignore_eos": True, "stop_token_ids": (4,)}, []),
        ({"repetition_penalty": 1.2, "logit_bias": {1: 2.0}, "logprobs": 2}, []),
    ],
)
def test_what_is_named(options: dict[str, object], named: list[str]) -> None:
    found = options_without_effect(SamplingParams(**options))  # type: ignore[arg-type]
    assert sorted(found) == named
    assert all(reason.startswith(("at ", "with ")) for reason in found.values())


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 2},
        {"top_p": 0.3},
        {"min_p": 0.9},
        {"seed": 7},
        {"verify": "token"},
        {"verify": "coupled"},
        {"draft_temperature": 1.7},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_named_option_changes_no_token(options: dict[str, object]) -> None:
    base = {"max_new_tokens": 40, "num_draft_tokens": 3}
    decoder, _, _ = pair()
    with decoder:
        expected = decoder.generate([1, 2], SamplingParams(**base)).token_ids  # type: ignore[arg-type]
        params = SamplingParams(**base, **options)  # type: ignore[arg-type]
        assert options_without_effect(params).keys() == options.keys()
        assert decoder.generate([1, 2], params).token_ids == expected
