"""Sampling options and prompt sources of `specdec-run`, without a package."""

import dataclasses
import io
import math
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from specdec.cli.options.prompts import read_prompts, to_request
from specdec.cli.options.sampling import sampling_options, sampling_params
from specdec.runtime.errors import InvalidParameterError
from specdec.runtime.sampling.params import SamplingParams


def parse(*arguments: str) -> SamplingParams:
    found: list[SamplingParams] = []

    @click.command()
    @sampling_options
    def command(**options: Any) -> None:
        found.append(sampling_params(options))
        assert options == {}

    CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)
    return found[0]


def test_nothing_given_is_the_defaults() -> None:
    assert parse() == SamplingParams()


EVERY_OPTION = """
    --max-new-tokens 9 --min-new-tokens 2 --temperature 0.5 --top-k 4 --top-p 0.9 --min-p 0.1
    --repetition-penalty 1.1 --presence-penalty 0.2 --frequency-penalty 0.3
    --no-repeat-ngram-size 3 --logit-bias 5=-inf --logit-bias 0=1.5 --stop a --stop b
    --stop-token-id 0 --stop-token-id 7 --ignore-eos --seed 0 --logprobs 0
    --num-draft-tokens 3 --draft-temperature 0.7 --verify coupled --keep-special-tokens
    --truncate-prompt left
"""


def test_every_field_has_its_option() -> None:
    got = parse(*EVERY_OPTION.split())
    assert got == SamplingParams(
        max_new_tokens=9,
        min_new_tokens=2,
        temperature=0.5,
        top_k=4,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        no_repeat_ngram_size=3,
        logit_bias={5: -math.inf, 0: 1.5},
        stop=("a", "b"),
        stop_token_ids=(0, 7),
        ignore_eos=True,
        seed=0,
        logprobs=0,
        num_draft_tokens=3,
        draft_temperature=0.7,
        verify="coupled",
        skip_special_tokens=False,
        truncate_prompt="left",
    )
    for field in dataclasses.fields(SamplingParams):
        assert getattr(got, field.name) != field.default, field.name


def test_auto_draft_length() -> None:
    assert parse("--num-draft-tokens", "auto").num_draft_tokens == "auto"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--logit-bias", "x=1"], "'x=1' is not ID=BIAS"),
        (["--logit-bias", "3"], "'3' is not ID=BIAS"),
        (["--num-draft-tokens", "many"], "'many' is neither a number nor 'auto'"),
        (["--verify", "none"], "'none' is not one of"),
    ],
)
def test_malformed_options(arguments: list[str], message: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        parse(*arguments)
    assert message in caught.value.format_message()


def test_values_are_checked_by_the_runtime() -> None:
    with pytest.raises(InvalidParameterError, match="top_p"):
        parse("--top-p", "2")


class TestPrompts:
    def test_order_and_the_last_line_break(self, tmp_path: Path) -> None:
        (tmp_path / "one").write_bytes(b"two\nlines\n\n")
        (tmp_path / "two").write_bytes("é\r\n".encode())
        files = [str(tmp_path / "one"), str(tmp_path / "two")]
        assert read_prompts(["a", "b\n"], files, False) == ["a", "b\n", "two\nlines\n", "é"]

    def test_stdin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("你好\n".encode())))
        assert read_prompts([], [], True) == ["你好"]
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x")))
        assert read_prompts([], ["-"], False) == ["x"]

    @pytest.mark.parametrize(
        ("texts", "reason"),
        [([], "no prompt"), ([""], "prompt of --prompt is empty"), (["\udcff"], "not UTF-8")],
    )
    def test_refused(self, texts: list[str], reason: str) -> None:
        with pytest.raises(click.UsageError, match=reason):
            read_prompts(texts, [], False)

    def test_file_that_is_not_text(self, tmp_path: Path) -> None:
        (tmp_path / "binary").write_bytes(b"\xff\xfe")
        with pytest.raises(click.UsageError, match="binary is not UTF-8"):
            read_prompts([], [str(tmp_path / "binary")], False)

    def test_requests(self) -> None:
        user = {"role": "user", "content": "q"}
        assert to_request("q", None, True) == [user]
        assert to_request("q", "s", True) == [{"role": "system", "content": "s"}, user]
        assert to_request("q", None, False) == "q"
