"""Token ids in, token ids out, over a host's own engines: the loop without text.

    decoder = TokenDecoder(my_engine, my_draft, eos_token_ids=[2])
    outcome = decoder.generate(prompt, out, SamplingParams(max_new_tokens=64))
    answer = out[: outcome.num_tokens]

`prompt` and `out` are buffers of the host (`specdec.runtime.embed.buffers`): ids are read from
the one and written into the other as they are decided. An engine is any object that satisfies
`Engine`, with one liberty: `forward` may return its logits as any float32 buffer or DLPack
tensor, which is read where it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import Engine, EngineInfo
from specdec.runtime.closing import Closing
from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.decoding.parts import DrafterName
from specdec.runtime.decoding.results import FinishReason
from specdec.runtime.decoding.stats import GenerationStats
from specdec.runtime.embed.buffers import view
from specdec.runtime.embed.errors import BadArgumentError
from specdec.runtime.sampling.params import SamplingParams, checked_params

__all__ = ["BufferEngine", "TokenDecoder", "TokenOutcome"]

_ID_TYPES = (np.int32, np.int64)
_LOGIT_TYPES = (np.float32, np.float64)


class BufferEngine:
    """An `Engine` whose logits may be any buffer, as one whose logits are NumPy views."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    @property
    def info(self) -> EngineInfo:
        """Static facts about the engine."""
        info: EngineInfo = self._engine.info
        return info

    @property
    def length(self) -> int:
        """Tokens in the engine's cache."""
        return int(self._engine.length)

    @property
    def prefill_chunk(self) -> int:
        """Rows per pass that suit a long prompt; 256 unless the engine says so itself."""
        return int(getattr(self._engine, "prefill_chunk", 256))

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> NDArray[np.floating[Any]]:
        """See `Engine.forward`.

        Raises:
            BadArgumentError: the logits are not `num_logits` rows of float32 or float64.
        """
        logits = self._engine.forward(token_ids, num_logits)
        shape = (1, num_logits, self.info.logits_width)
        if num_logits == 0:
            return np.empty(shape, np.float32)  # a host need not return any memory
        return view(logits, _LOGIT_TYPES, shape, name=f"logits of the {self.info.name} engine")

    def truncate(self, length: int) -> None:
        """See `Engine.truncate`."""
        self._engine.truncate(length)

    def close(self) -> None:
        """See `Engine.close`."""
        self._engine.close()


@dataclass(frozen=True)
class TokenOutcome:
    """How one call ended."""

    num_tokens: int
    """New tokens, at the front of `out`, the end token included."""
    finish_reason: FinishReason
    stats: GenerationStats


class TokenDecoder(Closing):
    """Speculative decoding over engines of the host; one generation at a time."""

    def __init__(
        self,
        target: Engine | Any,
        draft: Engine | Any | None = None,
        *,
        shares_cache: bool = False,
        eos_token_ids: Iterable[int] = (),
        drafter: DrafterName = "auto",
    ) -> None:
        """Take over the engines; arguments and errors as `SpeculativeDecoder`."""
        self._decoder = SpeculativeDecoder(
            BufferEngine(target),
            None if draft is None else BufferEngine(draft),
            shares_cache=shares_cache,
            eos_token_ids=eos_token_ids,
            drafter=drafter,
        )

    def generate(
        self,
        prompt: object,
        out: object,
        params: SamplingParams | None = None,
        on_tokens: Callable[[int], bool] | None = None,
    ) -> TokenOutcome:
        """Generate into `out` and wait for the end.

        Args:
            prompt: int32 or int64 ids, one dimension, contiguous.
            out: the same, writable, with room for `max_new_tokens`.
            params: None is greedy with 128 new tokens.
            on_tokens: called with the number of ids in `out` when it has grown; True cancels.

        Raises:
            BadArgumentError: a buffer is not as described.
            SpecdecError: as `SpeculativeDecoder.stream`.
        """
        params = checked_params(params)
        ids = view(prompt, _ID_TYPES, name="prompt")
        room = view(out, _ID_TYPES, name="out", writable=True)
        if len(room) < params.max_new_tokens:
            raise BadArgumentError(
                f"out holds {len(room)} ids and max_new_tokens is {params.max_new_tokens}; "
                "pass a buffer with room for all of them"
            )
        count = 0
        with self._decoder.stream(ids.tolist(), params) as stream:
            for chunk in stream:
                room[count : count + len(chunk.token_ids)] = chunk.token_ids
                count += len(chunk.token_ids)
                if on_tokens is not None and chunk.token_ids and on_tokens(count):
                    stream.close()
                    break
            result = stream.result
        assert result is not None, "a stream that ended has a result"
        room[: len(result.token_ids)] = result.token_ids
        return TokenOutcome(len(result.token_ids), result.finish_reason, result.stats)

    def cancel(self) -> None:
        """End the running generation before its next round; from any thread."""
        self._decoder.cancel()

    def described(self) -> str:
        """As the decoder it wraps."""
        return self._decoder.described()

    def close(self) -> None:
        """Close the engines. Idempotent."""
        self._decoder.close()
