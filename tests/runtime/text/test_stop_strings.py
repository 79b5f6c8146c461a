"""Stop strings: on bytes as tokens, so every split of one over tokens is visible."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.runtime.text.codec import TextCodec
from specdec.runtime.text.output_text import OutputText
from tests.support.small_tokenizers import byte_ids, make_codecs, stream, whole


@pytest.fixture(scope="module")
def codecs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TextCodec]:
    return make_codecs(tmp_path_factory.mktemp("tokenizers"))


class TestStopStrings:
    """On bytes as tokens, so every split of a stop string over tokens is visible."""

    @pytest.fixture
    def codec(self, codecs: dict[str, TextCodec]) -> TextCodec:
        return codecs["llama_like"]

    def run(self, codec: TextCodec, text: str, *stop: str) -> tuple[str, int, bool]:
        output = OutputText(codec, stop)
        taken, stopped = stream(output, byte_ids(codec, text.encode()))
        assert "".join(part for part, _ in taken) == output.text
        assert sum(count for _, count in taken) == output.num_tokens
        return output.text, output.num_tokens, stopped

    def test_over_several_tokens(self, codec: TextCodec) -> None:
        assert self.run(codec, "one END two", "END") == ("one ", 4, True)

    def test_at_the_very_start_keeps_nothing(self, codec: TextCodec) -> None:
        assert self.run(codec, "END", "END") == ("", 0, True)

    def test_false_starts_are_given_out(self, codec: TextCodec) -> None:
        assert self.run(codec, "EENEN.", "END") == ("EENEN.", 6, False)
        assert self.run(codec, "aab", "aab") == ("", 0, True)
        assert self.run(codec, "aaab", "aab") == ("a", 1, True)

    def test_held_back_until_decided(self, codec: TextCodec) -> None:
        output = OutputText(codec, ["END"])
        ids = byte_ids(codec, b"aENx")
        taken = []
        for token_id in ids:
            assert not output.push(token_id)
            taken.append(output.take())
        assert taken == [("a", 1), ("", 0), ("", 0), ("ENx", 3)]

    def test_finish_gives_out_the_held(self, codec: TextCodec) -> None:
        assert self.run(codec, "abEN", "END") == ("abEN", 4, False)

    def test_the_one_complete_first_wins(self, codec: TextCodec) -> None:
        assert self.run(codec, "abcd", "abcd", "c") == ("ab", 2, True)
        assert self.run(codec, "xyzw", "zw", "yz") == ("x", 1, True)

    def test_of_two_ending_together_the_longest_wins(self, codec: TextCodec) -> None:
        assert self.run(codec, "xab", "b", "ab") == ("x", 1, True)
        assert self.run(codec, "xab", "ab", "b") == ("x", 1, True)

    def test_inside_a_token(self, codecs: dict[str, TextCodec]) -> None:
        codec = codecs["metaspace"]
        ids = codec.encode("the hello world")
        assert len(ids) == 3
        output = OutputText(codec, ["ell"])
        taken, stopped = stream(output, ids)
        assert stopped
        assert taken == [("th", 1), ("e h", 1), ("", 0)]  # "e" could begin "ell"
        assert (output.text, output.num_tokens) == ("the h", 2)

    def test_in_multi_byte_characters(self, codec: TextCodec) -> None:
        assert self.run(codec, "a你好b", "好") == ("a你", 4, True)

    def test_tokens_without_text_before_a_stop_are_not_kept(self, codec: TextCodec) -> None:
        ids = [*byte_ids(codec, b"ab"), 2, 2, *byte_ids(codec, b"!")]
        output = OutputText(codec, ["!"])
        taken, stopped = stream(output, ids)
        assert stopped
        assert (output.text, output.num_tokens) == ("ab", 2)
        assert taken[:2] == [("a", 1), ("b", 1)]

    @pytest.mark.parametrize("skip", [True, False])
    def test_the_text_of_a_special_token_stops(
        self, codecs: dict[str, TextCodec], skip: bool
    ) -> None:
        codec = codecs["byte_level"]
        ids = codec.encode("fox</s>dog")
        assert [codec.decode([i], False) for i in ids] == ["fo", "x", "</s>", "do", "g"]
        for stop, expected, kept in (("</s>", "fox", 2), ("</s>d", "fox", 2), ("x</s>", "fo", 1)):
            output = OutputText(codec, [stop], skip)
            _, stopped = stream(output, ids)
            assert (output.text, output.num_tokens, stopped) == (expected, kept, True)

    def test_a_special_token_that_no_stop_names_stays_hidden(
        self, codecs: dict[str, TextCodec]
    ) -> None:
        codec = codecs["byte_level"]
        ids = codec.encode("<s>fox</s>dog</s>")
        assert whole(codec, ids, stop=["<s></s>", "xd"]) == "foxdog"
        assert whole(codec, ids, stop=["fo<s>"]) == "foxdog"
        assert whole(codec, ids, stop=["</"]) == "foxdog"
        assert whole(codec, ids, stop=["cat"]) == "foxdog"
        assert whole(codec, ids, stop=["xd"]) == "fo"

    def test_a_replacement_character_can_stop(self, codec: TextCodec) -> None:
        output = OutputText(codec, ["\ufffd"])
        for token_id in byte_ids(codec, b"a\xe4"):
            assert not output.push(token_id)
        output.finish()
        assert (output.text, output.num_tokens) == ("a", 1)

    def test_an_empty_stop_string_is_refused(self, codec: TextCodec) -> None:
        with pytest.raises(ValueError, match="empty"):
            OutputText(codec, ["a", ""])

    @settings(max_examples=200, deadline=None)
    @given(
        text=st.text(alphabet="abß", max_size=12),
        stop=st.lists(st.text(alphabet="abß", min_size=1, max_size=4), max_size=3),
    )
    def test_equals_the_search_in_the_whole_text(
        self, codecs: dict[str, TextCodec], text: str, stop: list[str]
    ) -> None:
        expected, stopped = text, False
        for end in range(1, len(text) + 1):
            hits = [len(s) for s in stop if text[:end].endswith(s)]
            if hits:
                expected, stopped = text[: end - max(hits)], True
                break
        got = self.run(codecs["llama_like"], text, *stop)
        assert got == (expected, len(expected.encode()), stopped)


def test_taking_late_gives_the_same_text(codecs: dict[str, TextCodec]) -> None:
    codec = codecs["byte_level"]
    ids = codec.encode("hello 你好, café 😀 end")
    output = OutputText(codec, ["end"])
    for token_id in ids:
        if output.push(token_id):
            break
    assert output.take() == ("hello 你好, café 😀 ", output.num_tokens)
    assert output.take() == ("", 0)
