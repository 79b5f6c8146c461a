"""Values of the wrong kind or size: the documented error. Parameters are values themselves."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from specdec.engines.errors import EngineError, PackageError
from specdec.engines.load import load_package
from specdec.engines.onnxruntime.options import OrtOptions
from specdec.export import ExportOptions
from specdec.export.errors import ExportOptionError
from specdec.runtime import (
    InvalidParameterError,
    PromptError,
    SamplingParams,
    SpeculativeDecoder,
)
from specdec.runtime.text.chat import ChatTemplate
from tests.support.decoders import CHAT, LETTERS, letter_codec, pair

HUGE = 2**70


@pytest.fixture
def decoder(tmp_path: Path) -> SpeculativeDecoder:
    chat = ChatTemplate(CHAT, {})
    return pair(len(LETTERS) + 2, codec=letter_codec(tmp_path), chat=chat)[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop_token_ids": [HUGE]}, rf"stop_token_ids\[0\] is {HUGE}; allowed is an integer in 0"),
        ({"logit_bias": {HUGE: 1.0}}, f"a token id of logit_bias is {HUGE}; allowed"),
        ({"logit_bias": {1: 10**400}}, r"logit_bias\[1\] is 1000.*\.\.\.; allowed is a number"),
        ({"max_new_tokens": HUGE}, f"max_new_tokens is {HUGE}; allowed is an integer in 1 .. 2147"),
        ({"top_k": 10**5000}, "top_k is a value of type int; allowed is an integer in 0"),
        ({"temperature": 10**400}, "temperature is 1000.*; allowed is 0 "),
        ({"stop": ["x" * 1000, 1]}, r"stop is \['xxx.*\.\.\.; allowed is a non-empty"),
    ],
)
def test_numbers_of_any_size(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message) as caught:
        SamplingParams(**options)
    assert len(str(caught.value)) < 300


def test_prompts_and_parameters_of_the_wrong_kind(decoder: SpeculativeDecoder) -> None:
    wrong: Any = {"temperature": 1.0}
    with pytest.raises(InvalidParameterError, match=r"params is dict; .*from_dict reads a dict"):
        decoder.generate("a", wrong)
    with pytest.raises(InvalidParameterError, match="params is dict"):
        decoder.session().generate("a", wrong)
    with pytest.raises(InvalidParameterError, match="the sampling options are 'temperature'"):
        SamplingParams.from_dict("temperature")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="reuse_prefix is 1; allowed is True or False"):
        decoder.generate("a", reuse_prefix=1)  # type: ignore[arg-type]
    with pytest.raises(PromptError, match=r"half a surrogate pair, '\\ud800' at character 0"):
        decoder.generate("\ud800")
    with pytest.raises(PromptError, match="half a surrogate pair"):
        decoder.generate([{"role": "user", "content": "a\ud800"}])
    with pytest.raises(PromptError, match=f"token id {HUGE}; allowed is 0 .. 7"):
        decoder.generate([HUGE])
    messages = [{"role": "user", "content": "a"}]
    with pytest.raises(PromptError, match="tools is dict; allowed is a list of dicts"):
        decoder.generate(messages, tools={"name": "f"})  # type: ignore[arg-type]
    with pytest.raises(PromptError, match="tool 0 is str; allowed is a list of dicts"):
        decoder.generate(messages, tools=["f"])  # type: ignore[list-item]
    with pytest.raises(PromptError, match="message 1 is str"):
        decoder.session().generate([*messages, "b"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"verify_checksums": 1}, "verify_checksums is 1; allowed is True or False"),
        ({"num_threads": 2**31}, "num_threads is 2147483648; allowed is an integer in 1 .. 1024"),
        ({"num_threads": True}, "num_threads is True; allowed is an integer in 1 .. 1024"),
        ({"drafter": ["model"]}, r"drafter is \['model'\]; allowed is 'auto'"),
        ({"ort": {"huge_pages": False}}, "ort is .*; allowed is OrtOptions"),
    ],
)
def test_arguments_of_load_are_looked_at_first(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        SpeculativeDecoder.load("/nowhere", **options)


def test_arguments_of_the_engines_floor(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="verify_checksums is 'no'; allowed is True or False"):
        load_package(tmp_path, verify_checksums="no")  # type: ignore[arg-type]
    with pytest.raises(PackageError, match="the package is 5; allowed is the path"):
        load_package(5)  # type: ignore[arg-type]
    with pytest.raises(PackageError, match="cannot be read"):
        load_package("a\0b")
    with pytest.raises(EngineError, match=r"load_cache is 'a\\x00b'; .* a path without NUL"):
        OrtOptions(load_cache="a\0b")  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="allow_operators is 'Loop'; allowed is a list"):
        OrtOptions(allow_operators="Loop")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_threads": "2"}, "num_threads is '2'; allowed is an integer"),
        ({"max_length": True}, "max_length is True; allowed is an integer"),
        ({"overwrite": "no"}, "overwrite is 'no'; allowed is True or False"),
        ({"out": 5}, "out is 5; allowed is a path"),
        ({"target": None}, "target is None; allowed is a string"),
        ({"require_speedup": "1"}, "require_speedup is '1'; allowed is a number"),
    ],
)
def test_options_of_an_export(options: dict[str, Any], message: str) -> None:
    given = {"target": "demo", "draft": "self", "out": "package", **options}
    with pytest.raises(ExportOptionError, match=message):
        ExportOptions(**given)


def test_parameters_with_biases_are_values() -> None:
    params = SamplingParams(logit_bias={3: 1.5, 1: -float("inf")}, stop=("x",))
    same = SamplingParams(logit_bias={1: -float("inf"), 3: 1.5}, stop=("x",))
    assert hash(params) == hash(same)
    assert {params, same} == {params}
    for copied in (copy.copy(params), copy.deepcopy(params), pickle.loads(pickle.dumps(params))):
        assert copied == params
        assert copied.logit_bias == {3: 1.5, 1: -float("inf")}
    assert asdict(params)["logit_bias"] == {3: 1.5, 1: -float("inf")}
    assert SamplingParams(**asdict(params)) == params
    assert replace(params, seed=1).logit_bias == params.logit_bias
    assert json.dumps(params.logit_bias) == '{"3": 1.5, "1": -Infinity}'


def test_biases_do_not_change() -> None:
    given = {3: 1.5}
    params = SamplingParams(logit_bias=given)
    given[4] = 1.0
    biases: Any = params.logit_bias
    for change in (
        lambda: biases.__setitem__(1, 2.0),
        lambda: biases.pop(3),
        lambda: biases.update({1: 2.0}),
        lambda: biases.clear(),
        lambda: biases.setdefault(1, 2.0),
        lambda: biases.__ior__({1: 2.0}),
    ):
        with pytest.raises(TypeError, match="do not change"):
            change()
    assert biases == {3: 1.5}


def test_messages_edited_afterwards_change_no_history(decoder: SpeculativeDecoder) -> None:
    part = {"type": "text", "text": "a"}
    message: dict[str, Any] = {"role": "user", "content": "a", "parts": [part]}
    session = decoder.session()
    session.generate([message], SamplingParams(max_new_tokens=1))
    message["content"] = part["text"] = "b"
    history: Any = session.messages
    history[0]["parts"].append("c")
    assert session.messages[0] == {
        "role": "user",
        "content": "a",
        "parts": [{"type": "text", "text": "a"}],
    }
