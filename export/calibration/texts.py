"""Load the texts that activations are calibrated on: our own, or a user's file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specdec.export.errors import ExportOptionError
from specdec.export.sources.tokenizers import SourceTokenizer
from specdec.runtime.report.measuring.prompt_set import load_prompts, load_texts
from specdec.runtime.text.chat import ChatTemplate

__all__ = ["CalibrationTexts", "load_calibration"]

_FORM = "a UTF-8 file with one sample a line, or with blank lines between samples"


@dataclass(frozen=True)
class CalibrationTexts:
    """Tokenized samples and their origin."""

    source: str
    """"built-in" or "file"."""
    samples: tuple[tuple[int, ...], ...]
    """Token ids; no sample is empty, and there is at least one."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all samples."""
        return sum(map(len, self.samples))


def load_calibration(file: Path | None, tokenizer: SourceTokenizer) -> CalibrationTexts:
    """Read the samples of `file`, or without one our own, and tokenize them.

    Our prompts are put through the chat template, where the model has one; a file is taken as it
    is, so that its owner decides what the model will see.

    Raises:
        ExportOptionError: the file cannot be read, is not UTF-8, or holds no text.
        PromptError: the model's chat template is broken.
    """
    if file is None:
        found = [ids for ids in _own(tokenizer) if ids]
    else:
        texts = _split(_read(file))
        found = [ids for text in texts if (ids := tuple(tokenizer.backend.encode(text).ids))]
    if not found:
        given = "the built-in texts have" if file is None else f"calibration file {file} has"
        raise ExportOptionError(f"{given} no text that gives tokens; allowed is {_FORM}")
    return CalibrationTexts("built-in" if file is None else "file", tuple(found))


def _own(tokenizer: SourceTokenizer) -> Iterator[tuple[int, ...]]:
    encode = tokenizer.backend.encode
    template = None
    if tokenizer.chat_template is not None:
        template = ChatTemplate(tokenizer.chat_template, tokenizer.special_tokens)
    for prompt in load_prompts():
        if template is None:
            yield tuple(encode(prompt.text).ids)
            continue
        asked = template.render([{"role": "user", "content": prompt.text}])
        yield tuple(encode(asked, add_special_tokens=False).ids)
    for text in load_texts():
        yield tuple(encode(text.text).ids)


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ExportOptionError(
            f"there is no calibration file {file}; allowed is {_FORM}"
        ) from None
    except OSError as error:
        raise ExportOptionError(
            f"calibration file {file} cannot be read ({error.strerror}); allowed is {_FORM}"
        ) from error
    except UnicodeDecodeError as error:
        raise ExportOptionError(
            f"calibration file {file} is not UTF-8 (byte {error.start}); allowed is {_FORM}"
        ) from error


def _split(text: str) -> list[str]:
    """Blocks between blank lines where there are several, else lines."""
    text = text.replace("\r\n", "\n")
    blocks = [block.strip("\n") for block in re.split(r"\n(?:[ \t]*\n)+", text) if block.strip()]
    return blocks if len(blocks) > 1 else [line for line in text.split("\n") if line.strip()]
