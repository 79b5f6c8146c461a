"""The tokenizer of a package: whole texts both ways, and one token's bytes at a time.

A token is not always text. Byte-level tokenizers (GPT-2's) spell every token as bytes, one
letter a byte; SentencePiece ones with byte fallback have 256 tokens `<0x00>` .. `<0xFF>`. Both
split a character over several tokens, so a stream must collect *bytes* and decode those.
`TextCodec.piece` gives the bytes one token adds after what came before it, in constant time:

- byte-level decoder: each letter of the token maps to its byte (GPT-2's `bytes_to_unicode`);
  a token with any other letter stands for its own UTF-8;
- byte-fallback decoder: a byte token is its byte;
- everything else: decode([previous, token]) minus decode([previous]), in UTF-8, so rules about
  leading spaces and word joints are the tokenizer's own.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from specdec.runtime.errors import PromptError
from specdec.runtime.text.open_tokenizer import decodes_safely, open_tokenizer
from specdec.runtime.text.quiet import TokenizerFault, call_quietly, guarded
from specdec.runtime.text.size_bound import SizeBound, size_bound

__all__ = ["TextCodec"]


class TextCodec:
    """A `tokenizer.json` (the format of the `tokenizers` library), read once.

    Args:
        tokenizer_file: path of the file; see `open_tokenizer`.

    Raises:
        PackageError: the file is missing, is not a tokenizer, or makes the library panic.
    """

    vocab_size: int
    """Largest token id + 1, added tokens included."""

    def __init__(self, tokenizer_file: Path) -> None:
        self._tokenizer = open_tokenizer(tokenizer_file)
        added = self._tokenizer.get_added_tokens_decoder()
        base_size = self._tokenizer.get_vocab_size(with_added_tokens=False)
        self.vocab_size = max(base_size, max(added, default=-1) + 1)
        self._special = {
            token_id: token.content for token_id, token in added.items() if token.special
        }
        kinds = set(_decoder_kinds(self._tokenizer))
        self._byte_letters = _byte_letters() if "ByteLevel" in kinds else None
        self._byte_tokens = self._find_byte_tokens() if "ByteFallback" in kinds else {}
        # A thread for each token's text would cost more than the text.
        self._call = guarded if decodes_safely(self._tokenizer) else call_quietly

    @property
    def byte_fallback(self) -> bool:
        """Whether single bytes are tokens of their own, `<0x00>` .. `<0xFF>`."""
        return bool(self._byte_tokens)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of `text`; special tokens spelled out in it become their ids.

        Args:
            text: any string.
            add_special_tokens: also what the tokenizer puts around a text, such as a start
                token. Off for text that a chat template wrote, which has them already.

        Raises:
            PromptError: half a surrogate pair, or a text that the tokenizer cannot spell.
        """
        try:
            found = call_quietly(
                lambda: self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
            )
        except TokenizerFault as fault:
            raise _cannot_encode(text, fault) from fault
        return list(found.ids)

    @functools.cached_property
    def size_bound(self) -> SizeBound | None:
        """What the size of a text says of its number of tokens; None where it says nothing."""
        return size_bound(self._tokenizer)

    def special_text(self, token_id: int) -> str | None:
        """The text of a special token; None for any other."""
        return self._special.get(token_id)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of `ids` as the tokenizer decodes them all at once.

        Ids that name no token (the padding of an output head) add nothing.

        Raises:
            PromptError: the tokenizer cannot decode them.
        """
        wanted = list(ids)
        try:
            return str(
                self._call(
                    lambda: self._tokenizer.decode(wanted, skip_special_tokens=skip_special_tokens)
                )
            )
        except TokenizerFault as fault:
            raise PromptError(
                f"the package's tokenizer cannot decode {len(wanted)} tokens ({fault}); export the "
                "package again"
            ) from fault

    def has_text(self, token_id: int, skip_special_tokens: bool = True) -> bool:
        """Tell whether decoding looks at this token at all."""
        if skip_special_tokens and token_id in self._special:
            return False
        return self._tokenizer.id_to_token(token_id) is not None

    def piece(self, previous: int | None, token_id: int) -> bytes:
        """Return the bytes a token adds to the text. The token must have text.

        Args:
            previous: the last token before it that has text; None at the start of a text,
                where many tokenizers drop a leading space.
            token_id: the token.

        Returns:
            UTF-8, whole characters or part of one.
        """
        if self._byte_letters is not None:
            return _spell(self._tokenizer.id_to_token(token_id), self._byte_letters)
        byte = self._byte_tokens.get(token_id)
        if byte is not None and (previous is not None or byte >= 0x80):
            return bytes([byte])
        if previous is None:
            return self.decode([token_id], skip_special_tokens=False).encode()
        before = self.decode([previous], skip_special_tokens=False)
        both = self.decode([previous, token_id], skip_special_tokens=False)
        return both[len(before) :].encode()

    def _find_byte_tokens(self) -> dict[int, int]:
        """Return {id of the token <0xHH>: byte}."""
        ids = {value: self._tokenizer.token_to_id(f"<0x{value:02X}>") for value in range(256)}
        return {token_id: value for value, token_id in ids.items() if token_id is not None}


def _cannot_encode(text: str, fault: TokenizerFault) -> PromptError:
    half = next((i for i, char in enumerate(text) if "\ud800" <= char <= "\udfff"), None)
    if half is not None:
        return PromptError(
            f"the prompt holds half a surrogate pair, {text[half]!r} at character {half}; allowed "
            "is Unicode text"
        )
    return PromptError(
        f"the package's tokenizer cannot encode this text of {len(text)} characters ({fault}); "
        "change the text, or export the package again"
    )


def _decoder_kinds(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the type names in the tokenizer's decoder, those inside a sequence too."""
    decoder = tokenizer.decoder
    if decoder is None:
        return
    parts = [json.loads(decoder.__getstate__())]
    while parts:
        part = parts.pop()
        yield part["type"]
        parts.extend(part.get("decoders", ()))


def _byte_letters() -> dict[str, int]:
    """Return {letter: byte} of byte-level tokenizers.

    Printable Latin-1 bytes are their own letter; the others take U+0100, U+0101, ... in order.
    Source: `bytes_to_unicode` in OpenAI's GPT-2 `encoder.py`.
    """
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in own}
    others = (byte for byte in range(256) if byte not in set(own))
    letters.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return letters


def _spell(token: str, letters: Mapping[str, int]) -> bytes:
    """Return the bytes of a byte-level token."""
    if all(letter in letters for letter in token):
        return bytes(letters[letter] for letter in token)
    return token.encode()
