"""The official client against the server: whole answers, streams, choices, log-probabilities."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from string import ascii_lowercase

import pytest

openai = pytest.importorskip("openai", reason="the client is not installed")

from tests.runtime.serving.http.conftest import Served  # noqa: E402

GREEDY = {"model": "alphabet", "temperature": 0}


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["alphabet"]
    assert client.models.retrieve("alphabet").owned_by == "specdec"


def test_a_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**GREEDY, messages=user("abc"))
    assert answer.choices[0].message.content == ascii_lowercase[3:]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 24)
    cut = client.chat.completions.create(**GREEDY, messages=user("abc"), max_completion_tokens=4)
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("defg", "length")


def test_contents_in_parts_and_roles(client: openai.OpenAI) -> None:
    messages = [
        {"role": "developer", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    answer = client.chat.completions.create(**GREEDY, messages=messages, stop=["f"])
    assert answer.choices[0].message.content == "cde"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 3


def test_a_stream_is_the_whole_answer_in_pieces(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        **GREEDY,
        messages=user("aä"),
        max_tokens=9,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"specdec_details": True, "num_draft_tokens": 4},
    )
    chunks = list(stream)
    texts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    whole = client.chat.completions.create(**GREEDY, messages=user("aä"), max_tokens=9)
    assert "".join(texts) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].usage == whole.usage
    spans = [
        s
        for c in chunks
        if c.choices
        for s in c.choices[0].model_extra.get("specdec", {}).get("spans", [])
    ]
    assert "".join(text for text, _ in spans) == "".join(texts)
    assert {drafted for _, drafted in spans} == {True, False}
    figures = chunks[-1].model_extra["specdec"][0]
    assert figures["drafted"] >= figures["accepted"] > 0


def test_choices_differ_and_a_seed_repeats_them(client: openai.OpenAI) -> None:
    options = {"model": "alphabet", "messages": user("a"), "max_tokens": 12, "temperature": 50.0}
    first = client.chat.completions.create(**options, n=3, seed=5)
    again = client.chat.completions.create(**options, n=3, seed=5)
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in again.choices]
    assert len(set(texts)) == 3
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert first.usage is not None
    assert first.usage.prompt_tokens == 1
    second = client.chat.completions.create(**options, seed=6)
    assert second.choices[0].message.content == texts[1]


def test_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        **GREEDY, messages=user("a"), max_tokens=2, logprobs=True, top_logprobs=2
    )
    content = answer.choices[0].logprobs.content
    assert [entry.token for entry in content] == ["b", "c"]
    assert [entry.top_logprobs[0].token for entry in content] == ["b", "c"]
    assert all(len(entry.top_logprobs) == 2 for entry in content)
    assert math.exp(content[0].logprob) <= 1.0
    assert content[0].bytes == [98]
    legacy = client.completions.create(**GREEDY, prompt="a", max_tokens=3, logprobs=1)
    logprobs = legacy.choices[0].logprobs
    assert logprobs.tokens == ["b", "c", "d"]
    assert logprobs.text_offset == [0, 1, 2]
    assert list(logprobs.top_logprobs[0]) == ["b"]


def test_completions_of_several_prompts(client: openai.OpenAI) -> None:
    answer = client.completions.create(**GREEDY, prompt=["x", "w"], max_tokens=8)
    assert [choice.text for choice in answer.choices] == ["yz", "xyz"]
    ids = client.completions.create(**GREEDY, prompt=[[33 + ord("x") - 33 - 33]], max_tokens=1)
    assert ids.usage.prompt_tokens == 1
    stream = client.completions.create(**GREEDY, prompt="x", max_tokens=8, stream=True)
    assert "".join(c.choices[0].text for c in stream) == "yz"


def test_a_bias_bans(client: openai.OpenAI, served: Served) -> None:
    codec = served.decoder.codec
    assert codec is not None
    b = codec.encode("b")[0]
    answer = client.chat.completions.create(
        **GREEDY, messages=user("a"), max_tokens=1, logit_bias={str(b): -100}
    )
    assert answer.choices[0].message.content != "b"


def test_many_clients_at_once(client: openai.OpenAI) -> None:
    def ask(letter: str) -> str:
        stream = client.chat.completions.create(**GREEDY, messages=user(letter), stream=True)
        return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)

    letters = ascii_lowercase[:-1]
    with ThreadPoolExecutor(12) as pool:
        texts = list(pool.map(ask, letters))
    assert texts == [ascii_lowercase[i + 1 :] for i in range(25)]


def test_the_asynchronous_client(served: Served) -> None:
    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="x") as client:

            async def one(letter: str) -> str:
                stream = await client.chat.completions.create(
                    **GREEDY, messages=user(letter), stream=True
                )
                return "".join(
                    [c.choices[0].delta.content or "" async for c in stream if c.choices]
                )

            return list(await asyncio.gather(*map(one, "mnop")))

    assert asyncio.run(ask()) == [ascii_lowercase[i:] for i in (13, 14, 15, 16)]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": "other"}, "NotFoundError", "model is 'other'; allowed is 'alphabet'"),
        ({"max_tokens": 0}, "BadRequestError", "max_tokens"),
        ({"temperature": -1}, "BadRequestError", "temperature is -1"),
        ({"extra_body": {"best_of": 2}}, "BadRequestError", "best_of: unknown field"),
        ({"extra_body": {"num_draft_tokens": 99}}, "BadRequestError", "num_draft_tokens is 99"),
        ({"response_format": {"type": "json_object"}}, "BadRequestError", "response_format"),
        ({"logit_bias": {"x": 1}}, "BadRequestError", "logit_bias"),
        ({"messages": []}, "BadRequestError", "messages"),
        ({"messages": user("")}, "BadRequestError", "prompt is empty"),
        ({"tool_choice": "required"}, "BadRequestError", "tool_choice"),
    ],
)
def test_refusals_name_the_field(
    client: openai.OpenAI, arguments: dict[str, object], error: str, message: str
) -> None:
    with pytest.raises(getattr(openai, error), match=message):
        client.chat.completions.create(**{**GREEDY, "messages": user("a"), **arguments})
