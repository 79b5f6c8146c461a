"""Text codec and incremental text, on tokenizers trained here and compared with `decode`."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from specdec.engines.errors import PackageError
from specdec.runtime.text.codec import TextCodec
from specdec.runtime.text.output_text import OutputText
from tests.support.small_tokenizers import byte_ids, make_codecs, stream, whole, words


@pytest.fixture(scope="module")
def codecs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TextCodec]:
    return make_codecs(tmp_path_factory.mktemp("tokenizers"))


class TestTextCodec:
    def test_encodes_and_decodes(self, codecs: dict[str, TextCodec]) -> None:
        for name in ("byte_level", "llama_like", "metaspace"):
            text = "hello the world"
            assert codecs[name].decode(codecs[name].encode(text)) == text

    def test_vocab_size_counts_added_tokens(self, codecs: dict[str, TextCodec]) -> None:
        codec = codecs["byte_level"]
        assert codec.vocab_size == 332
        assert codec.encode("<tool>") == [330]
        assert codec.decode([codec.vocab_size - 1]) == "← 左"

    def test_special_tokens_are_skipped_on_demand(self, codecs: dict[str, TextCodec]) -> None:
        codec = codecs["byte_level"]
        ids = codec.encode("<s>fox</s>")
        assert codec.decode(ids) == "fox"
        assert codec.decode(ids, skip_special_tokens=False) == "<s>fox</s>"

    def test_padding_ids_decode_to_nothing(self, codecs: dict[str, TextCodec]) -> None:
        codec = codecs["byte_level"]
        assert codec.decode([*codec.encode("fox"), 5000]) == "fox"

    def test_truncation_in_the_file_is_turned_off(self, tmp_path: Path) -> None:
        tokenizer = words()
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.enable_truncation(2)
        tokenizer.enable_padding(length=9)
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        assert TextCodec(tmp_path / "tokenizer.json").encode("a b ab a") == [1, 2, 3, 1]

    def test_refuses_a_file_that_is_no_tokenizer(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text("{}")
        with pytest.raises(PackageError, match="cannot read the tokenizer"):
            TextCodec(tmp_path / "tokenizer.json")
        with pytest.raises(PackageError, match=r"missing\.json"):
            TextCodec(tmp_path / "missing.json")


@pytest.mark.parametrize("name", ["byte_level", "llama_like", "metaspace"])
@settings(max_examples=150, deadline=None)
@given(prompt=st.text(max_size=8), text=st.text(max_size=24), skip=st.booleans())
def test_text_is_decode_of_all_minus_the_prompt(
    codecs: dict[str, TextCodec], name: str, prompt: str, text: str, skip: bool
) -> None:
    codec = codecs[name]
    before, after = codec.encode(prompt), codec.encode(text)
    joined = codec.decode([*before, *after], skip)
    expected = joined[len(codec.decode(before, skip)) :]
    got = whole(codec, after, prompt_ids=before, skip_special_tokens=skip)
    assert got == expected


@settings(max_examples=300, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_any_tokens_of_a_byte_level_tokenizer(
    codecs: dict[str, TextCodec], data: st.DataObject, skip: bool
) -> None:
    codec = codecs["byte_level"]
    ids = data.draw(st.lists(st.integers(0, codec.vocab_size + 2), max_size=20))
    assert whole(codec, ids, skip_special_tokens=skip) == codec.decode(ids, skip)


@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(0, 3), max_size=6), prompt=st.lists(st.integers(0, 3), max_size=2))
def test_a_tokenizer_without_a_decoder(
    codecs: dict[str, TextCodec], ids: list[int], prompt: list[int]
) -> None:
    codec = codecs["words"]
    expected = codec.decode([*prompt, *ids])[len(codec.decode(prompt)) :]
    assert whole(codec, ids, prompt_ids=prompt) == expected


@pytest.mark.parametrize("name", ["llama_like", "metaspace"])
class TestByteFallback:
    def test_a_character_comes_out_when_it_is_whole(
        self, codecs: dict[str, TextCodec], name: str
    ) -> None:
        output = OutputText(codecs[name])
        taken, _ = stream(output, byte_ids(codecs[name], "ä€😀".encode()))
        assert taken == [
            *(("", 0), ("ä", 2)),
            *(("", 0), ("", 0), ("€", 3)),
            *(("", 0), ("", 0), ("", 0), ("😀", 4)),
            ("", 0),
        ]

    def test_cut_off_bytes_become_replacements_at_the_end(
        self, codecs: dict[str, TextCodec], name: str
    ) -> None:
        codec = codecs[name]
        ids = byte_ids(codec, b"\xf0\x9f\x98")
        assert whole(codec, ids) == codec.decode(ids) == "\ufffd" * 3

    def test_invalid_bytes_leave_their_neighbours_alone(
        self, codecs: dict[str, TextCodec], name: str
    ) -> None:
        codec = codecs[name]
        assert whole(codec, byte_ids(codec, b"\xc3\xa4\xff\xe4A")) == "ä\ufffd\ufffdA"

    @settings(max_examples=100, deadline=None)
    @given(text=st.text(min_size=1, max_size=6))
    def test_any_text_in_bytes(self, codecs: dict[str, TextCodec], name: str, text: str) -> None:
        codec = codecs[name]
        ids = byte_ids(codec, text.encode())
        assert whole(codec, ids) == codec.decode(ids)

    def test_a_skipped_token_inside_a_character(
        self, codecs: dict[str, TextCodec], name: str
    ) -> None:
        codec = codecs[name]
        first, second = byte_ids(codec, "ä".encode())
        assert whole(codec, [first, 1, second]) == "ä" == codec.decode([first, 1, second])


class TestLeadingSpace:
    @pytest.mark.parametrize("name", ["llama_like", "metaspace"])
    def test_first_word_of_all_loses_its_space(
        self, codecs: dict[str, TextCodec], name: str
    ) -> None:
        codec = codecs[name]
        ids = codec.encode("the end")
        assert whole(codec, ids) == "the end"
        assert whole(codec, ids, prompt_ids=[1]) == "the end"  # <s> is skipped

    @pytest.mark.parametrize("name", ["llama_like", "metaspace"])
    def test_a_continuation_keeps_it(self, codecs: dict[str, TextCodec], name: str) -> None:
        codec = codecs[name]
        ids = codec.encode("the end")
        assert whole(codec, ids, prompt_ids=codec.encode("hello")) == " the end"
        prompt = [*codec.encode("hello"), 2, 2, 2, 2, 2, 2]
        assert whole(codec, ids, prompt_ids=prompt) == " the end"

    def test_a_kept_special_token_counts_as_text(self, codecs: dict[str, TextCodec]) -> None:
        codec = codecs["llama_like"]
        ids = codec.encode("the end")
        assert whole(codec, ids, prompt_ids=[1], skip_special_tokens=False) == " the end"


def test_character_begun_in_the_prompt_belongs_to_the_output(
    codecs: dict[str, TextCodec],
) -> None:
    codec = codecs["llama_like"]
    ids = byte_ids(codec, "x你".encode())
    assert whole(codec, ids[2:], prompt_ids=ids[:2]) == "你"


def test_nothing_generated_is_no_text(codecs: dict[str, TextCodec]) -> None:
    codec = codecs["llama_like"]
    output = OutputText(codec, prompt_ids=byte_ids(codec, b"\xe4"))
    output.finish()
    output.finish()
    assert (output.text, output.num_tokens, output.take()) == ("", 0, ("", 0))


def test_work_per_token_does_not_grow(codecs: dict[str, TextCodec]) -> None:
    class Counting(TextCodec):
        decoded = 0

        def decode(self, ids: object, skip_special_tokens: bool = True) -> str:
            Counting.decoded += len(ids)  # type: ignore[arg-type]
            return super().decode(ids, skip_special_tokens)  # type: ignore[arg-type]

    codec = codecs["metaspace"]
    counting = Counting.__new__(Counting)
    counting.__dict__.update(codec.__dict__)
    ids = codec.encode("the hello world " * 50)
    whole(counting, ids, stop=["END"])
    assert Counting.decoded <= 3 * len(ids)
