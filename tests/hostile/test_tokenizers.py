"""Hostile tokenizer files: one line of `PackageError`, nothing on stderr, no panic that passes."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from specdec.engines.errors import PackageError
from specdec.runtime.errors import PromptError
from specdec.runtime.text import open_tokenizer as opening
from specdec.runtime.text.codec import TextCodec
from specdec.runtime.text.open_tokenizer import decodes_safely, open_tokenizer
from specdec.runtime.text.quiet import TokenizerFault, call_quietly
from tests.hostile.tokenizers import REFUSED, tokenizer_tree


def write(folder: Path, **parts: Any) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(tokenizer_tree(**parts)))
    return path


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_hostile_file_is_refused_at_load(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    parts, reason = REFUSED[name]
    with pytest.raises(PackageError, match=reason) as caught:
        TextCodec(write(tmp_path, **parts))
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("export the package again")
    assert capfd.readouterr() == ("", "")


def test_a_file_of_any_size_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MAX_BYTES", 100)
    with pytest.raises(PackageError, match="is larger than 100 B"):
        TextCodec(write(tmp_path))
    with pytest.raises(PackageError, match="is not a regular file"):
        TextCodec(Path("/dev/zero"))


def test_what_fails_at_a_text_is_a_prompt_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "[UNK]"}
    codec = TextCodec(write(tmp_path, model=model))
    assert codec.encode("a") == [0]
    with pytest.raises(PromptError, match=r"cannot encode this text of 2 characters \(WordLevel"):
        codec.encode("zz")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["\ud800", "ab\udfffab"])
def test_half_a_surrogate_pair_is_a_prompt_error(tmp_path: Path, text: str) -> None:
    codec = TextCodec(write(tmp_path))
    where = min(text.find(half) for half in text if "\ud800" <= half <= "\udfff")
    with pytest.raises(PromptError, match=f"half a surrogate pair, .* at character {where};"):
        codec.encode(text)


def test_a_decoder_with_an_index_decodes_where_nothing_is_seen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Token 3, which the tries at load cannot know of all vocabularies, is shorter than 2."""
    codec = TextCodec(write(tmp_path))
    hostile = tokenizer_tree(decoder={"type": "Strip", "content": "a", "start": 0, "stop": 2})
    codec._tokenizer = codec._tokenizer.from_str(json.dumps(hostile))
    assert not decodes_safely(codec._tokenizer)
    codec._call = call_quietly
    with pytest.raises(PromptError, match=r"cannot decode 1 tokens \(index out of bounds"):
        codec.decode([0])
    assert capfd.readouterr() == ("", "")


def test_only_the_calling_thread_loses_its_descriptors(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def write_and_count() -> int:
        os.write(2, b"a panic's lines\n")
        return len(list(Path("/proc/thread-self/fd").iterdir()))

    beside = threading.Thread(target=lambda: os.write(2, b"a service's line\n"))
    with (tmp_path / "kept").open("w") as kept:
        found = call_quietly(write_and_count)
        beside.start()
        beside.join()
        kept.write("still open here")
    assert found == 4  # 0, 1, 2 and the listing's own
    assert capfd.readouterr() == ("", "a service's line\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_errors_that_are_not_the_librarys_stay_what_they_are(error: type[BaseException]) -> None:
    def strike() -> None:
        raise error

    with pytest.raises(error):
        call_quietly(strike)


def test_any_other_error_is_a_fault() -> None:
    with pytest.raises(TokenizerFault, match="two words") as caught:
        call_quietly(lambda: (_ for _ in ()).throw(ValueError("two\nwords")))
    assert not caught.value.is_panic


def test_dropout_is_off(tmp_path: Path) -> None:
    model = {**tokenizer_tree()["model"], "dropout": 0.9}
    codec = TextCodec(write(tmp_path, model=model))
    assert {tuple(codec.encode("abababab")) for _ in range(50)} == {(2, 2, 2, 2)}
    assert open_tokenizer(tmp_path / "tokenizer.json").model.dropout is None
