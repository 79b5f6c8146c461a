"""A host's own engine, given as the C struct `specdec_engine`, behind the `Engine` protocol."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import EngineInfo, check_forward
from specdec.engines.errors import EngineError
from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.embed.c_results import last_error
from specdec.runtime.embed.documents import check_names
from specdec.runtime.embed.errors import BadArgumentError, CallbackError
from specdec.runtime.errors import InvalidParameterError
from specdec.runtime.text.codec import TextCodec

__all__ = ["CEngine", "open_engines"]

_OPTIONS = ("eos_token_ids", "drafter", "tokenizer")


class CEngine:
    """Counts the cached tokens and calls the host's functions; copies no logits."""

    def __init__(self, ffi: Any, lib: Any, given: Any, name: str) -> None:
        """Copy the struct `given`.

        Raises:
            BadArgumentError: its sizes make no sense.
        """
        self._ffi = ffi
        self._lib = lib
        self._engine = ffi.new("specdec_engine *", given[0])
        self._threw = ffi.new("int32_t *")
        self._logits = ffi.new("float **")
        self._info = _info(given, name)
        self._length = 0
        self._closed = False

    @property
    def info(self) -> EngineInfo:
        """Static facts; what the host did not say is 0."""
        return self._info

    @property
    def length(self) -> int:
        """Tokens in the host's cache."""
        return self._length

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> NDArray[np.float32]:
        """See `Engine.forward`; the result is a view of the host's memory."""
        rows = check_forward(self._info, self._length, token_ids, num_logits)
        ids = self._ffi.from_buffer("int64_t[]", np.ascontiguousarray(token_ids))
        self._logits[0] = self._ffi.NULL
        status = self._lib.specdec_native_forward(
            self._engine, self._length, ids, rows, num_logits, self._logits, self._threw
        )
        self._check(status, "forward")
        self._length += rows
        shape = (1, num_logits, self._info.logits_width)
        if num_logits == 0:
            return np.empty(shape, np.float32)
        if self._logits[0] == self._ffi.NULL:
            self._length -= rows
            raise EngineError(
                f"forward of the {self._info.name} engine set no logits; "
                "point *logits at its float32 rows"
            )
        memory = self._ffi.buffer(self._logits[0], 4 * shape[1] * shape[2])
        return np.frombuffer(memory, np.float32).reshape(shape)

    def truncate(self, length: int) -> None:
        """See `Engine.truncate`."""
        if not 0 <= length <= self._length:
            raise ValueError(f"cannot truncate to {length}; allowed is 0 .. {self._length}")
        status = self._lib.specdec_native_truncate(self._engine, length, self._threw)
        self._check(status, "truncate")
        self._length = length

    def close(self) -> None:
        """Tell the host, once, that its engine is no longer used."""
        if not self._closed:
            self._closed = True
            self._lib.specdec_native_close(self._engine, self._threw)

    def _check(self, status: int, function: str) -> None:
        name = self._info.name
        if self._threw[0]:
            text = last_error(self._ffi, self._lib)
            raise CallbackError(f"{function} of the {name} engine threw an exception: {text}")
        if status:
            raise EngineError(f"{function} of the {name} engine returned {status}; 0 is success")


def open_engines(
    ffi: Any, lib: Any, target: Any, draft: Any, options: Mapping[str, Any]
) -> SpeculativeDecoder:
    """A decoder over one or two `specdec_engine *`; options as specdec.h says.

    Raises:
        UnsupportedOptionError, InvalidParameterError: an option is unknown or wrong.
        BadArgumentError: the sizes of an engine make no sense.
        PackageError: the tokenizer cannot be read.
    """
    check_names(options, _OPTIONS)
    tokenizer = options.get("tokenizer")
    if tokenizer is not None and not isinstance(tokenizer, str):
        raise InvalidParameterError(f"tokenizer is {tokenizer!r}; allowed is a path")
    return SpeculativeDecoder(
        CEngine(ffi, lib, target, "target"),
        None if draft == ffi.NULL else CEngine(ffi, lib, draft, "draft"),
        codec=None if tokenizer is None else TextCodec(Path(tokenizer)),
        eos_token_ids=options.get("eos_token_ids", ()),
        drafter=options.get("drafter", "auto"),
    )


def _info(given: Any, name: str) -> EngineInfo:
    vocab_size, width = int(given.vocab_size), int(given.logits_width)
    max_length = int(given.max_length)
    if not 1 <= vocab_size <= width or max_length < 1:
        raise BadArgumentError(
            f"the {name} engine has vocab_size {vocab_size}, logits_width {width} and max_length "
            f"{max_length}; allowed is 1 <= vocab_size <= logits_width and max_length >= 1"
        )
    return EngineInfo(
        name=name,
        vocab_size=vocab_size,
        logits_width=width,
        max_length=max_length,
        num_layers=0,
        num_attention_heads=0,
        num_kv_heads=0,
        head_size=0,
        storage="fp32",
        compute="fp32",
        backend="host",
        device="cpu",
    )
