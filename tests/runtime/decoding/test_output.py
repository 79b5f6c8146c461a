"""Text of a generation: end tokens, stop strings, streams, over any number of drafts."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec.runtime import PromptError, SamplingParams, SpeculativeDecoder
from specdec.runtime.text.chat import ChatTemplate
from tests.support.decoders import CHAT, END, NUM_LETTER_TOKENS, cycle_table, letter_codec
from tests.support.table_engine import TableEngine


@pytest.fixture
def letters(tmp_path: Path) -> SpeculativeDecoder:
    """Greedy text: abcdef<end>abc..., five drafted tokens a round, all accepted."""
    successor = {i: i + 1 for i in range(END)} | {END: 0, END + 1: 0}
    table = cycle_table(successor, NUM_LETTER_TOKENS)
    return SpeculativeDecoder(
        TableEngine(table),
        TableEngine(table, name="draft"),
        codec=letter_codec(tmp_path),
        chat=ChatTemplate(CHAT, {}),
        eos_token_ids=[END],
    )


@pytest.mark.parametrize("num_draft_tokens", [0, 2, 5])
def test_text(letters: SpeculativeDecoder, num_draft_tokens: int) -> None:
    def run(prompt="a", **options):
        stream = letters.stream(
            prompt, SamplingParams(num_draft_tokens=num_draft_tokens, **options)
        )
        chunks = list(stream)
        result = stream.result
        assert "".join(chunk.text for chunk in chunks) == result.text
        assert sum((chunk.token_ids for chunk in chunks), ()) == result.token_ids
        return result.text, result.token_ids, result.finish_reason

    assert run() == ("bcdef", (1, 2, 3, 4, 5, 6), "stop")
    assert run(skip_special_tokens=False)[0] == "bcdef<end>"
    assert run(stop="de") == ("bc", (1, 2), "stop")
    assert run(stop=["ef", "bc"]) == ("", (), "stop")
    assert run(stop="fa") == ("bcdef", (1, 2, 3, 4, 5, 6), "stop")
    assert run(stop="xyz", max_new_tokens=3) == ("bcd", (1, 2, 3), "length")
    assert run(stop="f", ignore_eos=True, max_new_tokens=9) == ("bcde", (1, 2, 3, 4), "stop")
    assert run(stop_token_ids=[3]) == ("bc", (1, 2, 3), "stop")
    messages = [{"role": "user", "content": "c"}]
    assert run(messages)[0] == "def"


def test_stop_string_over_rounds_cuts_ids_and_caches(letters: SpeculativeDecoder) -> None:
    for k in (0, 1, 3):
        result = letters.generate("a", SamplingParams(num_draft_tokens=k, stop="cdef", logprobs=0))
        assert (result.text, result.token_ids) == ("b", (1,))
        assert len(result.logprobs) == 1
        assert letters._parts.caches.ids == [0, 1]
        assert letters._parts.target.cached == [0]


def test_tools_need_messages(letters: SpeculativeDecoder) -> None:
    with pytest.raises(PromptError, match="tools"):
        letters.generate("a", tools=[{"name": "f"}])
