"""Text through the whole decoder on byte-level and byte-fallback tokenizers.

The target recites a text whose bytes are all different, so every answer is known; drafts are
right, so that characters arrive whole, in halves, and inside accepted blocks.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from specdec.runtime import SamplingParams, SpeculativeDecoder
from specdec.runtime.text.codec import TextCodec
from tests.support.decoders import cycle_table
from tests.support.small_tokenizers import make_codecs
from tests.support.table_engine import TableEngine, nearby_table, random_table

RECITED = "ä€😀"  # nine bytes, no two alike
KINDS = ["byte_level", "llama_like", "metaspace"]


@pytest.fixture(scope="module")
def codecs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TextCodec]:
    return make_codecs(tmp_path_factory.mktemp("tokenizers"))


def byte_tokens(codec: TextCodec, data: bytes) -> list[int]:
    """One token a byte."""
    by_bytes = {
        codec.piece(0, token): token
        for token in range(codec.vocab_size)
        if codec.has_text(token) and len(codec.piece(0, token)) == 1
    }
    return [by_bytes[bytes([value])] for value in data]


def reciter(codec: TextCodec) -> tuple[SpeculativeDecoder, list[int]]:
    """A pair that recites after token 0, and the tokens of what it recites."""
    tokens = byte_tokens(codec, RECITED.encode())
    chain = [0, *tokens, 1]
    successor = dict(itertools.pairwise(chain))
    table = cycle_table(successor, codec.vocab_size)
    engines = [TableEngine(table, name=name) for name in ("target", "draft")]
    return SpeculativeDecoder(*engines, codec=codec, eos_token_ids=[1], drafter="model"), tokens


@pytest.mark.parametrize("num_draft_tokens", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_holds_back_what_is_not_a_character_yet(
    codecs: dict[str, TextCodec], kind: str, num_draft_tokens: int
) -> None:
    """Rows 20 and 23 of docs/defects.md."""
    decoder, tokens = reciter(codecs[kind])
    stream = decoder.stream([0], SamplingParams(num_draft_tokens=num_draft_tokens))
    chunks = list(stream)
    assert "".join(chunk.text for chunk in chunks) == RECITED == stream.result.text
    assert [t for chunk in chunks for t in chunk.token_ids] == [*tokens, 1]
    assert stream.result.stats.new_tokens == len(tokens) + 1
    assert all(set(chunk.text) <= set(RECITED) for chunk in chunks)
    if num_draft_tokens == 0:
        assert [(chunk.text, len(chunk.token_ids)) for chunk in chunks] == [
            ("ä", 2), ("€", 3), ("😀", 4), ("", 1),
        ]  # fmt: skip


@pytest.mark.parametrize("num_draft_tokens", [0, 2, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_string_of_bytes_cuts_text_ids_and_cache(
    codecs: dict[str, TextCodec], kind: str, num_draft_tokens: int
) -> None:
    """Row 6 of docs/defects.md."""
    decoder, tokens = reciter(codecs[kind])
    params = SamplingParams(num_draft_tokens=num_draft_tokens, stop="€", logprobs=0)
    result = decoder.generate([0], params)
    assert (result.text, list(result.token_ids)) == ("ä", tokens[:2])
    assert len(result.logprobs) == result.stats.new_tokens == 2
    assert decoder._parts.target.cached == [0, tokens[0]]


@pytest.mark.parametrize("num_draft_tokens", [0, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_character_cut_off_by_the_limit_is_said_to_be(
    codecs: dict[str, TextCodec], kind: str, num_draft_tokens: int
) -> None:
    decoder, tokens = reciter(codecs[kind])
    params = SamplingParams(num_draft_tokens=num_draft_tokens, max_new_tokens=4)
    stream = decoder.stream([0], params)
    texts = [chunk.text for chunk in stream]
    assert "".join(texts) == stream.result.text
    assert stream.result.text.startswith("ä\ufffd")
    assert list(stream.result.token_ids) == tokens[:4]


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_random_text_is_that_of_its_tokens(
    codecs: dict[str, TextCodec], kind: str, seed: int, skip: bool
) -> None:
    """Where the bytes happen to be UTF-8 the text is the tokenizer's own."""
    codec = codecs[kind]
    table = random_table(seed, codec.vocab_size, spread=3.0)
    spelled = byte_tokens(codec, bytes(range(0x80, 0x100)))
    table[:, spelled] = -np.inf  # no byte of a longer character: always UTF-8
    engines = (TableEngine(table), TableEngine(nearby_table(table, 1), name="draft"))
    decoder = SpeculativeDecoder(*engines, codec=codec, drafter="model")
    params = SamplingParams(
        max_new_tokens=50, temperature=1.0, seed=seed, num_draft_tokens=3, skip_special_tokens=skip
    )
    prompt = codec.encode("hello the world")
    stream = decoder.stream(prompt, params)
    joined = "".join(chunk.text for chunk in stream)
    result = stream.result
    before = codec.decode(prompt, skip)
    assert joined == result.text
    assert before + result.text == codec.decode([*prompt, *result.token_ids], skip)
