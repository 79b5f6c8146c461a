"""Requests as they come over the wire: OpenAI's fields and ours, and nothing else.

An unknown field is an error that names it. Our own options stand beside OpenAI's, where the
`extra_body` of OpenAI's client puts them. Defaults are OpenAI's: temperature 1.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ChatRequest", "CompletionRequest", "GenerationRequest", "Message"]

_DEFAULT_NEW_TOKENS = 256
_MOST_CHOICES = 16


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TextPart(_Strict):
    """A part of a message's content; text is the only kind."""

    type: Literal["text"]
    text: str


class Message(_Strict):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None

    def for_template(self) -> dict[str, Any]:
        """As chat templates know it: text content, `developer` called `system`."""
        content = self.content
        if isinstance(content, list):
            content = "".join(part.text for part in content)
        role = "system" if self.role == "developer" else self.role
        message: dict[str, Any] = {"role": role, "content": content or ""}
        rest = self.model_dump(include={"name", "tool_calls", "tool_call_id"}, exclude_none=True)
        return message | rest


class StreamOptions(_Strict):
    """How a stream is told."""

    include_usage: bool = False


class ResponseFormat(_Strict):
    """Text is the only format: no grammar constrains the output."""

    type: Literal["text"]


class GenerationRequest(_Strict):
    """What both kinds of request share."""

    model: str
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    n: Annotated[int, Field(ge=1, le=_MOST_CHOICES)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[str, float] | None = None
    user: str | None = None
    """Accepted and not used: nothing is kept about users."""

    top_k: int = 0
    min_p: float = 0.0
    min_new_tokens: int = 0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    stop_token_ids: list[int] = Field(default_factory=list)
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    truncate_prompt: Literal["left"] | None = None
    num_draft_tokens: int | Literal["auto"] = "auto"
    draft_temperature: float | None = None
    verify: Literal["block", "token", "coupled"] = "block"
    priority: int = 0
    """Higher ones get a free slot first."""
    timeout: Annotated[float, Field(gt=0)] | None = None
    """Seconds until the request is given up, waiting included."""
    specdec_details: bool = False
    """Tell of each streamed token whether the draft proposed it, and the figures at the end."""

    @property
    def num_new_tokens(self) -> int:
        """How many tokens are wanted at most."""
        return self.max_tokens or _DEFAULT_NEW_TOKENS

    @property
    def num_alternatives(self) -> int | None:
        """Log-probabilities wanted: how many alternatives, None for none."""
        raise NotImplementedError

    def sampling_options(self, choice: int) -> dict[str, Any]:
        """The fields of `SamplingParams` for the choice of this number.

        Choices of one request differ: with a seed, choice i has the seed plus i.
        """
        biases = self.logit_bias
        return {
            "max_new_tokens": self.num_new_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stop": () if self.stop is None else self.stop,
            "seed": None if self.seed is None else self.seed + choice,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "logit_bias": None if biases is None else {_id(k): v for k, v in biases.items()},
            "logprobs": self.num_alternatives,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "min_new_tokens": self.min_new_tokens,
            "repetition_penalty": self.repetition_penalty,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
            "stop_token_ids": tuple(self.stop_token_ids),
            "ignore_eos": self.ignore_eos,
            "skip_special_tokens": self.skip_special_tokens,
            "truncate_prompt": self.truncate_prompt,
            "num_draft_tokens": self.num_draft_tokens,
            "draft_temperature": self.draft_temperature,
            "verify": self.verify,
        }


class ChatRequest(GenerationRequest):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    """What the model says of tools comes as text; a call cannot be forced."""
    response_format: ResponseFormat | None = None

    @property
    def num_new_tokens(self) -> int:
        """`max_completion_tokens`, the newer name, counts before `max_tokens`."""
        return self.max_completion_tokens or super().num_new_tokens

    @property
    def num_alternatives(self) -> int | None:
        """`top_logprobs` where `logprobs` is set."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def offered_tools(self) -> list[dict[str, Any]] | None:
        """The tools for the template."""
        return None if self.tool_choice == "none" else self.tools or None


class CompletionRequest(GenerationRequest):
    """The body of /v1/completions."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: Literal[False] = False
    """Only false: the prompt is not sent back."""

    @property
    def num_alternatives(self) -> int | None:
        """`logprobs` itself is the number here."""
        return self.logprobs

    @property
    def prompts(self) -> list[str | list[int]]:
        """One prompt or several, each as text or ids."""
        prompt: Any = self.prompt
        if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
            return [prompt]
        return list(prompt)


def _id(key: str) -> int | str:
    """Keys of JSON objects are text; what is no number is left for the error to show."""
    return int(key) if key.isdecimal() else key
