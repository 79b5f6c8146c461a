"""The bodies of answers, as OpenAI's API defines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec.runtime.decoding.results import Chunk, GenerationResult
from specdec.runtime.decoding.stats import GenerationStats
from specdec.runtime.sampling.logprobs import Logprob, TokenLogprobs
from specdec.runtime.text.codec import TextCodec

__all__ = ["ChatAnswers", "CompletionAnswers", "error_body", "figures", "spans", "usage"]

_FINISH = {"stop": "stop", "length": "length", "context": "length", "cancelled": "stop"}
"""The context's end is a limit of length; "cancelled" is told to nobody but a client that left."""


def error_body(message: str, kind: str, code: str | None = None) -> dict[str, Any]:
    """An error in OpenAI's form."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def usage(results: Sequence[GenerationResult], num_prompts: int = 1) -> dict[str, int]:
    """Tokens read and written; the choices of one prompt read it once.

    Args:
        results: every choice of every prompt, those of a prompt beside each other.
    """
    choices = max(len(results) // num_prompts, 1)
    prompt = sum(len(result.prompt_token_ids) for result in results[::choices])
    completion = sum(len(result.token_ids) for result in results)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def spans(chunk: Chunk, codec: TextCodec) -> list[tuple[str, bool]]:
    """The text of a chunk in pieces, each with whether the draft proposed it.

    Where characters or hidden tokens do not part as the tokens do, one piece.
    """
    pieces: list[tuple[bytes, bool]] = []
    for token, drafted in zip(chunk.token_ids, chunk.from_draft, strict=True):
        piece = _piece(codec, token)
        if pieces and pieces[-1][1] == drafted:
            pieces[-1] = (pieces[-1][0] + piece, drafted)
        else:
            pieces.append((piece, drafted))
    parts = [(piece.decode("utf-8", "replace"), drafted) for piece, drafted in pieces]
    if "".join(text for text, _ in parts) == chunk.text:
        return parts
    return [(chunk.text, any(chunk.from_draft))] if chunk.text else []


def figures(stats: GenerationStats, plain_tokens_per_second: float | None) -> dict[str, Any]:
    """What speculation brought, for those who ask with `specdec_details`."""
    return {
        "plain_tokens_per_second": plain_tokens_per_second,
        "rounds": stats.rounds,
        "drafted": stats.drafted,
        "evaluated": stats.evaluated,
        "accepted": stats.accepted,
        "tokens_per_round": stats.tokens_per_round,
        "acceptance_rate": stats.acceptance_rate,
        "tokens_per_second": stats.tokens_per_second,
        "time_to_first_token": stats.time_to_first_token,
        "fallback": stats.fallback,
    }


class _Answers:
    """The envelope that all answers to one request share."""

    kind = ""
    prefix = ""

    def __init__(self, number: str, model: str, created: int, codec: TextCodec) -> None:
        """Fix the id, the model's name and the time (Unix seconds)."""
        self._id = f"{self.prefix}-{number}"
        self._model, self._created, self._codec = model, created, codec

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }

    def _token(self, score: Logprob) -> dict[str, Any]:
        piece = _piece(self._codec, score.token_id)
        return {
            "token": piece.decode("utf-8", "replace"),
            "logprob": max(score.raw, -9999.0),
            "bytes": list(piece),
        }


class ChatAnswers(_Answers):
    """Answers of /v1/chat/completions."""

    kind = "chat.completion"
    prefix = "chatcmpl"

    def whole(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        """The answer at once."""
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": result.text, "refusal": None},
                "logprobs": self._logprobs(result.logprobs),
                "finish_reason": _FINISH[result.finish_reason],
            }
            for index, result in enumerate(results)
        ]
        return self._envelope(self.kind, choices) | {"usage": usage(results)}

    def first(self, index: int) -> dict[str, Any]:
        """What opens the stream of a choice."""
        return self._delta(index, {"role": "assistant", "content": ""}, None, None)

    def chunk(self, index: int, chunk: Chunk) -> dict[str, Any]:
        """A piece of a stream."""
        reason = None if chunk.finish_reason is None else _FINISH[chunk.finish_reason]
        delta = {"content": chunk.text} if chunk.text or reason is None else {}
        return self._delta(index, delta, self._logprobs(chunk.logprobs), reason)

    def last(self, results: Sequence[GenerationResult], num_prompts: int) -> dict[str, Any]:
        """The usage at the end of a stream."""
        envelope = self._envelope(f"{self.kind}.chunk", [])
        return envelope | {"usage": usage(results, num_prompts)}

    def _delta(
        self, index: int, delta: dict[str, Any], logprobs: Any, reason: str | None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return self._envelope(f"{self.kind}.chunk", [choice])

    def _logprobs(self, entries: Sequence[TokenLogprobs] | None) -> dict[str, Any] | None:
        if entries is None:
            return None
        content = [
            self._token(entry.chosen)
            | {"top_logprobs": [self._token(other) for other in ranked(entry)]}
            for entry in entries
        ]
        return {"content": content, "refusal": None}


class CompletionAnswers(_Answers):
    """Answers of /v1/completions."""

    kind = "text_completion"
    prefix = "cmpl"

    def whole(self, results: Sequence[GenerationResult], num_prompts: int) -> dict[str, Any]:
        """The answer at once."""
        choices = [
            self._choice(index, result.text, result.logprobs, _FINISH[result.finish_reason])
            for index, result in enumerate(results)
        ]
        return self._envelope(self.kind, choices) | {"usage": usage(results, num_prompts)}

    def first(self, index: int) -> None:
        """A stream of text opens with its text."""

    def chunk(self, index: int, chunk: Chunk) -> dict[str, Any]:
        """A piece of a stream."""
        reason = None if chunk.finish_reason is None else _FINISH[chunk.finish_reason]
        return self._envelope(self.kind, [self._choice(index, chunk.text, chunk.logprobs, reason)])

    def last(self, results: Sequence[GenerationResult], num_prompts: int) -> dict[str, Any]:
        """The usage at the end of a stream."""
        return self._envelope(self.kind, []) | {"usage": usage(results, num_prompts)}

    def _choice(
        self, index: int, text: str, entries: Sequence[TokenLogprobs] | None, reason: str | None
    ) -> dict[str, Any]:
        logprobs = None if entries is None else self._logprobs(entries)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def _logprobs(self, entries: Sequence[TokenLogprobs]) -> dict[str, Any]:
        chosen = [self._token(entry.chosen) for entry in entries]
        offsets = [0]
        for token in chosen:
            offsets.append(offsets[-1] + len(token["token"]))
        tops = [[self._token(other) for other in ranked(entry)] for entry in entries]
        return {
            "tokens": [token["token"] for token in chosen],
            "token_logprobs": [token["logprob"] for token in chosen],
            "top_logprobs": [{t["token"]: t["logprob"] for t in top} for top in tops],
            "text_offset": offsets[:-1],
        }


def ranked(entry: TokenLogprobs) -> list[Logprob]:
    """The most probable tokens, the chosen one among them where it belongs; ties by id."""
    scores = sorted([entry.chosen, *entry.alternatives], key=lambda s: (-s.raw, s.token_id))
    return scores[: len(entry.alternatives)]


def _piece(codec: TextCodec, token: int) -> bytes:
    """The bytes of a token inside a text."""
    return codec.piece(token, token) if codec.has_text(token, skip_special_tokens=False) else b""
