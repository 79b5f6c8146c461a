"""The output of one generation: tokens kept, the reason it ends, and text ready to stream.

Tokens are kept one by one in order and everything is cut at the first end: an end token
(kept in the ids, its text only when special tokens are shown), a stop string (the text ends
before it, the ids at the last token that has a part in the text), or `max_new_tokens`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specdec.runtime.decoding.results import Chunk, FinishReason
from specdec.runtime.sampling.logprobs import TokenLogprobs
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.text.output_text import OutputText

__all__ = ["Output"]


class Output:
    """Tokens, text and log-probabilities kept so far.

    Attributes:
        token_ids: the kept tokens; shrinks once, when a stop string is found.
        finish_reason: None while more may come.
    """

    def __init__(
        self, params: SamplingParams, end_token_ids: frozenset[int], text: OutputText | None
    ) -> None:
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._params = params
        self._ends = end_token_ids
        self._text = text
        self._from_draft: list[bool] = []
        self._logprobs: list[TokenLogprobs] = []
        self._num_taken = 0

    @property
    def num_wanted(self) -> int:
        """Tokens still allowed."""
        return self._params.max_new_tokens - len(self.token_ids)

    @property
    def text(self) -> str:
        """Text that is decided so far."""
        return self._text.text if self._text is not None else ""

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...] | None:
        """One entry per kept token when asked for."""
        return tuple(self._logprobs) if self._params.logprobs is not None else None

    def add(self, tokens: Sequence[int], num_drafted: int) -> int:
        """Keep the tokens of a round up to the first end; returns how many were looked at.

        Args:
            tokens: what the verdict commits.
            num_drafted: how many of them, from the first, the draft proposed.
        """
        for index, token in enumerate(tokens):
            self.token_ids.append(token)
            self._from_draft.append(index < num_drafted)
            self.finish_reason = self._ends_with(token)
            if self.finish_reason is not None:
                self._cut()
                return index + 1
        return len(tokens)

    def add_logprobs(self, entries: Iterable[TokenLogprobs]) -> None:
        """Add the entries of the tokens just kept."""
        self._logprobs.extend(entries)
        del self._logprobs[len(self.token_ids) :]

    def finish(self, reason: FinishReason) -> None:
        """End for a reason that lies outside the tokens."""
        if self.finish_reason is None:
            self.finish_reason = reason
            self._cut()

    def take(self) -> Chunk:
        """What can be released since the last call; everything once finished."""
        text = ""
        end = len(self.token_ids)
        if self._text is not None:
            text, released = self._text.take()
            if self.finish_reason is None:
                end = self._num_taken + released
        part = slice(self._num_taken, end)
        self._num_taken = end
        return Chunk(
            text=text,
            token_ids=tuple(self.token_ids[part]),
            from_draft=tuple(self._from_draft[part]),
            logprobs=tuple(self._logprobs[part]) if self._params.logprobs is not None else None,
            finish_reason=self.finish_reason,
        )

    def _ends_with(self, token: int) -> FinishReason | None:
        """The reason why generation ends with the token just added, or None."""
        is_end = token in self._ends
        show = not (is_end and self._params.skip_special_tokens)
        if self._text is not None and show and self._text.push(token):
            return "stop"
        if is_end:
            return "stop"
        return "length" if self.num_wanted == 0 else None

    def _cut(self) -> None:
        """Release or drop the held-back text; drop tokens that lie wholly after a stop string."""
        if self._text is None:
            return
        self._text.finish()
        hidden = int(
            bool(self.token_ids)
            and self.token_ids[-1] in self._ends
            and self._params.skip_special_tokens
        )
        kept = self._text.num_tokens
        if kept + hidden < len(self.token_ids):
            del self.token_ids[kept:], self._from_draft[kept:], self._logprobs[kept:]
            self.finish_reason = "stop"
