"""LangChain's chat model against the server: whole, streamed, and in batches."""

from __future__ import annotations

from string import ascii_lowercase

import pytest

langchain = pytest.importorskip("langchain_openai", reason="LangChain is not installed")

from tests.runtime.serving.http.conftest import Served  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def model(served: Served) -> object:
    return langchain.ChatOpenAI(
        base_url=f"{served.url}/v1",
        api_key="none",
        model="alphabet",
        temperature=0,
        max_retries=0,
        extra_body={"num_draft_tokens": 4},
    )


def test_an_answer(model: langchain.ChatOpenAI) -> None:
    answer = model.invoke([("system", "x"), ("human", "ab")])
    assert answer.content == ascii_lowercase[2:]
    assert answer.usage_metadata["input_tokens"] == 3
    assert answer.usage_metadata["output_tokens"] == 25
    assert answer.response_metadata["finish_reason"] == "stop"


def test_a_stream_with_usage(model: langchain.ChatOpenAI) -> None:
    chunks = list(model.stream("m", stream_usage=True))
    assert "".join(chunk.content for chunk in chunks) == ascii_lowercase[13:]
    assert sum(c.usage_metadata["output_tokens"] for c in chunks if c.usage_metadata) == 14


def test_a_batch(model: langchain.ChatOpenAI) -> None:
    answers = model.batch(list("abcdef"), stop=["y"])
    assert [a.content for a in answers] == [ascii_lowercase[i:24] for i in range(1, 7)]


def test_tools_go_to_the_template(model: langchain.ChatOpenAI) -> None:
    def weather(city: str) -> str:
        """The weather in a city."""
        return city

    answer = model.bind_tools([weather]).invoke("y")
    assert answer.content == "z"
    assert answer.tool_calls == []
