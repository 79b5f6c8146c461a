"""The `Engine` contract: one model with its KV cache on one device.

Everything above this layer (the draft-verify loop, drafters, sessions) is written against
this protocol, so a table in a test, ONNX Runtime, TensorRT or a host's own engine can all
stand behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Engine", "EngineInfo", "check_forward", "check_truncate"]


@dataclass(frozen=True)
class EngineInfo:
    """What an engine is; all counts are in tokens, rows or elements."""

    name: str
    """"target" or "draft": how messages call this engine."""
    vocab_size: int
    """Number of real tokens: ids `0 .. vocab_size - 1` are legal."""
    logits_width: int
    """Columns of the logits; at least `vocab_size` when the model pads its output head."""
    max_length: int
    """Capacity of the KV cache in tokens."""
    num_layers: int
    num_attention_heads: int
    num_kv_heads: int
    head_size: int
    storage: str
    """Precision of the weights on disk: "fp32", "fp16", "int8", "int4", ..."""
    compute: str
    """Precision of the arithmetic: "fp32" or "fp16"; quantized kernels say "int8"."""
    backend: str
    """As in the manifest, such as "onnxruntime", or the name of a host's own engine."""
    device: str
    """"cpu" or "cuda:N"."""
    engine: str = ""
    """What computes: "native avx512", "onnxruntime"; the backend's name unless it says more."""

    def __post_init__(self) -> None:
        if not self.engine:
            object.__setattr__(self, "engine", self.backend)


@runtime_checkable
class Engine(Protocol):
    """One model with its KV cache on one device. Not thread-safe: one caller at a time."""

    @property
    def info(self) -> EngineInfo:
        """Static facts about the engine."""
        ...

    @property
    def length(self) -> int:
        """Number of tokens whose keys and values are in the cache."""
        ...

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> NDArray[np.floating[Any]]:
        """Append M tokens to the cache and return logits for the last rows.

        Args:
            token_ids: int64, shape [batch, M], M >= 1. `batch` is 1 in this release.
            num_logits: how many of the last rows to score, 0 <= num_logits <= M.

        Returns:
            float32 (or wider), shape [batch, num_logits, logits_width]. It may be a view of
            an output buffer that the next `forward` overwrites: copy what must outlive it.

        Raises:
            ContextOverflowError: `length + M > info.max_length`; the cache is unchanged.
            EngineError: the backend failed; `length` is what it was before the call.
        """
        ...

    def truncate(self, length: int) -> None:
        """Forget every token at position `length` and later (an absolute length), in O(1).

        Raises:
            ValueError: `length` is negative or larger than the current length.
        """
        ...

    def close(self) -> None:
        """Release the backend's resources; further calls are errors. Idempotent."""
        ...


def check_forward(
    info: EngineInfo, length: int, token_ids: NDArray[np.int64], num_logits: int
) -> int:
    """Validate the arguments of `Engine.forward` the same way for every backend.

    Returns:
        M, the number of rows.

    Raises:
        ValueError: wrong rank, batch, dtype, `num_logits`, or an id outside the vocabulary.
        ContextOverflowError: the rows do not fit in the cache.
    """
    from specdec.engines.errors import ContextOverflowError

    if token_ids.ndim != 2 or token_ids.shape[0] != 1 or token_ids.shape[1] < 1:
        raise ValueError(
            f"token_ids of the {info.name} engine has shape {list(token_ids.shape)}; "
            "allowed is [1, M] with M >= 1"
        )
    if token_ids.dtype != np.int64:
        raise ValueError(f"token_ids has dtype {token_ids.dtype}; allowed is int64")
    rows = int(token_ids.shape[1])
    if not 0 <= num_logits <= rows:
        raise ValueError(f"num_logits is {num_logits}; allowed is 0 .. {rows} for {rows} rows")
    low, high = int(token_ids.min()), int(token_ids.max())
    if low < 0 or high >= info.vocab_size:
        bad = low if low < 0 else high
        raise ValueError(
            f"token id {bad} is outside the vocabulary of the {info.name} engine; "
            f"allowed is 0 .. {info.vocab_size - 1}"
        )
    if length + rows > info.max_length:
        raise ContextOverflowError(
            f"{rows} more tokens after {length} do not fit in the {info.name} engine's context "
            f"of {info.max_length}; shorten the prompt or export with a larger --max-length"
        )
    return rows


def check_truncate(info: EngineInfo, current: int, length: int) -> None:
    """Validate the argument of `Engine.truncate` the same way for every backend.

    Raises:
        ValueError: `length` is negative or larger than `current`.
    """
    if not 0 <= length <= current:
        raise ValueError(
            f"cannot truncate the {info.name} engine to {length}; allowed is 0 .. {current}"
        )
