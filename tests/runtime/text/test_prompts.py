"""Prompts to ids: what a truncation keeps, what is refused before it is tokenized."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from specdec.runtime import PromptError, SamplingParams
from specdec.runtime.text.chat import ChatTemplate
from specdec.runtime.text.codec import TextCodec
from specdec.runtime.text.prompts import PromptReader
from tests.support.small_tokenizers import make_codecs

CONTEXT = 32
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}({{ m.role[0] }}){{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}(a){% endif %}"
)
WANTS_USER = "{% if messages[-1].role != 'user' %}{{ raise_exception('no') }}{% endif %}" + TEMPLATE
LEFT = SamplingParams(max_new_tokens=9, truncate_prompt="left")  # room for 24 tokens
SYSTEM = {"role": "system", "content": "be"}
USER = {"role": "user", "content": "a long question of many letters"}


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    """A token per byte, `<s>` before every text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>")])
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A", special_tokens=[("<s>", 256)]
    )
    path = tmp_path_factory.mktemp("codec") / "tokenizer.json"
    tokenizer.save(str(path))
    return TextCodec(path)


def reader(
    codec: TextCodec, template: str = TEMPLATE, bos_token_id: int | None = 256
) -> PromptReader:
    return PromptReader(
        codec, ChatTemplate(template, {"bos_token": "<s>"}), bos_token_id, 257, CONTEXT
    )


@pytest.mark.parametrize("bos_token_id", [256, None], ids=["named", "written by the tokenizer"])
def test_a_truncation_keeps_the_start_token(codec: TextCodec, bos_token_id: int | None) -> None:
    text = "".join(chr(97 + i % 26) for i in range(40))
    fitted = reader(codec, bos_token_id=bos_token_id).read(text, LEFT)
    assert codec.decode(fitted.ids, False) == "<s>" + text[-23:]
    assert fitted.cut == (
        "the prompt has 41 tokens: tokens 1 .. 17 were cut, the first 1 and the last 23 are kept"
    )


def test_a_truncation_keeps_the_system_prompt(codec: TextCodec) -> None:
    fitted = reader(codec).read([SYSTEM, USER], LEFT)
    assert codec.decode(fitted.ids, False) == "<s>(s)be;" + "f many letters;(a)"[-17:]
    assert len(fitted.ids) == 24
    assert fitted.cut is not None
    assert "the first 7 and the last 17 are kept" in fitted.cut


def test_a_system_prompt_that_leaves_no_room_goes(codec: TextCodec) -> None:
    system = {"role": "system", "content": "a system prompt of letters"}
    fitted = reader(codec).read([system, USER], LEFT)
    assert fitted.cut is not None
    assert "the first 1 and the last 23 are kept" in fitted.cut
    assert codec.decode(fitted.ids, False).startswith("<s>")


def test_a_template_that_marks_no_system_prompt_keeps_the_start(codec: TextCodec) -> None:
    fitted = reader(codec, WANTS_USER).read([SYSTEM, USER], LEFT)
    assert fitted.cut is not None
    assert "the first 1 and the last 23" in fitted.cut


def test_ids_without_a_start_token_lose_their_front(codec: TextCodec) -> None:
    fitted = reader(codec).read(list(range(40)), LEFT)
    assert fitted.ids == list(range(16, 40))
    assert fitted.cut == "the prompt has 40 tokens: tokens 0 .. 15 were cut, the last 24 are kept"


def test_what_fits_is_not_cut(codec: TextCodec) -> None:
    fitted = reader(codec).read("short", LEFT)
    assert fitted.cut is None
    assert codec.decode(fitted.ids, False) == "<s>short"


def test_a_giant_is_refused_untokenized(codec: TextCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    giant = "ab" * 5_000_000
    monkeypatch.setattr(TextCodec, "encode", lambda *_: pytest.fail("it was tokenized"))
    started = time.monotonic()
    with pytest.raises(PromptError, match=r"10000000 characters, which are \d+ tokens or more"):
        reader(codec).read(giant, SamplingParams())
    with pytest.raises(PromptError, match=r"characters, which are \d+ tokens or more"):
        reader(codec).read([{"role": "user", "content": giant}], SamplingParams())
    assert time.monotonic() - started < 10  # it takes half a second


def test_a_text_of_the_longest_tokens_is_not_refused_by_its_size(codec: TextCodec) -> None:
    context = 50
    text = "<s>" * (context - 1)  # 3 bytes a token, the longest; and one more at the start
    read = PromptReader(codec, None, None, 257, context).read(text, SamplingParams())
    assert len(read.ids) == context


def test_the_bound_holds_for_every_text(tmp_path: Path) -> None:
    texts = [
        "",
        "the quick brown fox " * 50,
        "日本語" * 40,
        "naïve " * 9,
        "\U0001f600" * 9,
        "<tool>" * 9,
    ]
    bounds = {name: codec.size_bound for name, codec in make_codecs(tmp_path).items()}
    assert bounds["words"] is None  # an unknown word of any length is one token
    for name, codec in make_codecs(tmp_path).items():
        bound = bounds[name]
        for text in texts if bound is not None else ():
            assert bound.least_tokens(text) <= len(codec.encode(text, add_special_tokens=False))
    assert bounds["byte_level"] is not None
    assert bounds["llama_like"] is not None


def test_variables_go_with_messages_only(codec: TextCodec) -> None:
    with pytest.raises(PromptError, match="chat_template_kwargs were given with a prompt that is"):
        reader(codec).encode("text", arguments={"a": 1})
    with pytest.raises(PromptError, match="tools were given with a prompt that is not messages"):
        reader(codec).encode("text", tools=[])
