"""The text of one generation while its tokens arrive, and the stop strings in it.

Each token's bytes go through an incremental UTF-8 decoder, so only whole characters become
text. New text is searched together with what was held back; held back is the longest end of
the text that is a proper beginning of a stop string, so nothing that may still be cut is ever
shown. Work per token does not grow with the length of the output.

A stop string may name a special token, whose text is hidden. So the text that is searched holds
the special tokens that stop strings name; they never become part of the text that is given out.

    bytes of a token -> whole characters -> held | safe -> taken

What the text is: decode(prompt_ids + kept ids) minus decode(prompt_ids), where decode is the
tokenizer's. Two differences, both about bytes that are not UTF-8. A character begun by the
last tokens of the prompt belongs to the output. In a run of byte-fallback tokens that is not
UTF-8 as a whole, the tokenizer gives up every character of the run (U+FFFD for each byte);
here whole characters stay and only the bytes that are part of none become U+FFFD, one each.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from specdec.runtime.text.codec import TextCodec

__all__ = ["OutputText"]

# An unfinished character has at most 3 bytes, so at most 3 tokens.
_PROMPT_TAIL = 4


class OutputText:
    """Incremental text of one generation.

    Args:
        codec: the tokenizer.
        stop: strings that end the text; the one complete first wins, of several complete at
            the same character the longest.
        skip_special_tokens: special tokens add no text.
        prompt_ids: what the output continues; decides how a leading space is treated.

    Raises:
        ValueError: a stop string is empty.
    """

    def __init__(
        self,
        codec: TextCodec,
        stop: Sequence[str] = (),
        skip_special_tokens: bool = True,
        prompt_ids: Sequence[int] = (),
    ) -> None:
        if any(not string for string in stop):
            raise ValueError("a stop string is empty; allowed is one character or more")
        self._codec = codec
        self._stop = tuple(stop)
        self._skip_special_tokens = skip_special_tokens
        errors = _REPLACE_EACH if codec.byte_fallback else "replace"
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors)
        self._previous: int | None = None  # the last token that has text
        self._ends: list[int] = []  # characters of searched text after each token
        self._held = _Searched()  # may be the beginning of a stop string
        self._decided_length = 0  # characters of searched text
        self._safe: list[str] = []  # decided text, in order
        self._taken = 0  # items of _safe given out
        self._taken_tokens = 0
        self._covering = 0  # shortest token prefix whose text covers the decided text
        self._stopped = False
        self._finished = False
        self._start_after(prompt_ids)

    @property
    def text(self) -> str:
        """The decided text: all of it after `finish` or a stop string, else without the held."""
        return "".join(self._safe)

    @property
    def num_tokens(self) -> int:
        """Tokens kept: the shortest prefix that covers `text`; all when finished unstopped."""
        if self._finished and not self._stopped:
            return len(self._ends)
        return self._covering

    def push(self, token_id: int) -> bool:
        """Add a token; True when it completes a stop string. Nothing may be pushed after that."""
        assert not self._stopped, "a token was pushed after the end of the text"
        assert not self._finished, "a token was pushed after the end of the text"
        hidden = self._hidden(token_id)
        text = hidden or self._utf8.decode(self._bytes(token_id))
        self._ends.append((self._ends[-1] if self._ends else 0) + len(text))
        self._add(_Searched(text, (bool(hidden),) * len(text)))
        return self._stopped

    def take(self) -> tuple[str, int]:
        """Return the decided text not taken before and the number of tokens it releases.

        The texts joined are a prefix of the final `text`, the numbers never add up to more
        than the final `num_tokens`; after `finish` or a stop string both are equal to them.
        """
        text = "".join(self._safe[self._taken :])
        released = self.num_tokens - self._taken_tokens
        self._taken = len(self._safe)
        self._taken_tokens = self.num_tokens
        return text, released

    def finish(self) -> None:
        """Say that nothing more comes: what was held back is decided. Idempotent."""
        if self._finished:
            return
        if self._ends and not self._stopped:
            text = self._utf8.decode(b"", final=True)
            self._ends[-1] += len(text)
            self._add(_Searched(text, (False,) * len(text)))
        if not self._stopped:
            self._decide(self._held)
            self._held = _Searched()
        self._finished = True

    def _start_after(self, prompt_ids: Sequence[int]) -> None:
        """Take up the state the prompt leaves: its last token and an unfinished character."""
        tail: list[int] = []
        for token_id in reversed(prompt_ids):
            if len(tail) == _PROMPT_TAIL:
                break
            if self._codec.has_text(token_id, self._skip_special_tokens):
                tail.append(token_id)
        for token_id in reversed(tail):
            self._utf8.decode(self._bytes(token_id))

    def _bytes(self, token_id: int) -> bytes:
        """Return what the token adds after the tokens so far."""
        if not self._codec.has_text(token_id, self._skip_special_tokens):
            return b""
        piece = self._codec.piece(self._previous, token_id)
        self._previous = token_id
        return piece

    def _hidden(self, token_id: int) -> str:
        """The text of a hidden special token that a stop string names, else nothing."""
        text = self._codec.special_text(token_id) if self._skip_special_tokens else None
        named = text and any(text in string for string in self._stop)
        return text if text and named else ""

    def _add(self, new: _Searched) -> None:
        """Search the held and the new text; decide what no stop string can reach."""
        pending = self._held.followed_by(new)
        cut = _first_stop(pending.text, self._stop)
        if cut is not None:
            self._stopped = True
            self._held = _Searched()
            self._decide(pending.part(0, cut))
            return
        safe = len(pending.text) - _held_length(pending.text, self._stop)
        self._held = pending.part(safe)
        self._decide(pending.part(0, safe))

    def _decide(self, part: _Searched) -> None:
        """Move searched text to the decided part."""
        shown = part.shown
        if shown:
            self._safe.append(shown)
            last = self._decided_length + part.shown_end
            while (self._ends[self._covering - 1] if self._covering else 0) < last:
                self._covering += 1
        self._decided_length += len(part.text)


@dataclass(frozen=True)
class _Searched:
    """Text that stop strings are searched in."""

    text: str = ""
    hidden: tuple[bool, ...] = ()
    """For each character whether it is of a hidden token."""

    @property
    def shown(self) -> str:
        """What of it is given out."""
        if not any(self.hidden):
            return self.text
        return "".join(c for c, hidden in zip(self.text, self.hidden, strict=True) if not hidden)

    @property
    def shown_end(self) -> int:
        """Where the last character that is given out ends."""
        return max(i for i, hidden in enumerate(self.hidden, 1) if not hidden)

    def followed_by(self, new: _Searched) -> _Searched:
        """Both, one after the other."""
        return _Searched(self.text + new.text, self.hidden + new.hidden)

    def part(self, start: int, end: int | None = None) -> _Searched:
        """The characters of a slice."""
        return _Searched(self.text[start:end], self.hidden[start:end])


def _first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Return where the stop string that is complete first begins, None without one."""
    found = [(start + len(string), start) for string in stop if (start := text.find(string)) >= 0]
    return min(found)[1] if found else None


def _held_length(text: str, stop: Sequence[str]) -> int:
    """Return the length of the longest end of `text` that is a proper beginning of a stop."""
    longest = 0
    for string in stop:
        for length in range(min(len(string) - 1, len(text)), longest, -1):
            if text.endswith(string[:length]):
                longest = length
                break
    return longest


def _replace_each(error: UnicodeError) -> tuple[str, int]:
    """Replace every byte of an invalid sequence by U+FFFD, as byte-fallback decoders do."""
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


_REPLACE_EACH = "specdec.replace_each_byte"
codecs.register_error(_REPLACE_EACH, _replace_each)
