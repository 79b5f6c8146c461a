"""Chunks and results as the structs of specdec.h."""

from __future__ import annotations

import json
from typing import Any

from specdec.runtime.decoding.results import Chunk, GenerationResult
from specdec.runtime.embed.errors import CallbackError

__all__ = ["ChunkCaller", "fill_result"]

_REASONS = {None: 0, "stop": 1, "length": 2, "context": 3, "cancelled": 4}


class ChunkCaller:
    """Hands chunks to a `specdec_callback`; True when the host wants to cancel."""

    def __init__(self, ffi: Any, lib: Any, callback: Any, user: Any) -> None:
        self._ffi = ffi
        self._lib = lib
        self._callback = callback
        self._user = user
        self._threw = ffi.new("int32_t *")

    def __call__(self, chunk: Chunk) -> bool:
        """Call the host.

        Raises:
            CallbackError: the callback threw a C++ exception.
        """
        ffi = self._ffi
        text = chunk.text.encode("utf-8", "replace")
        token_ids = ffi.new("int32_t[]", chunk.token_ids)
        flags = ffi.new("uint8_t[]", bytes(chunk.from_draft))
        letters = ffi.new("char[]", text)
        given = ffi.new("specdec_chunk *")
        given.token_ids, given.from_draft, given.num_tokens = token_ids, flags, len(token_ids)
        given.text, given.text_bytes = letters, len(text)
        given.finish_reason = _REASONS[chunk.finish_reason]
        answer = self._lib.specdec_native_chunk(self._callback, given, self._user, self._threw)
        if self._threw[0]:
            raise CallbackError(f"the callback threw an exception: {last_error(ffi, self._lib)}")
        return bool(answer)


def last_error(ffi: Any, lib: Any) -> str:
    """Text the C side left for this thread."""
    return str(ffi.string(lib.specdec_last_error()).decode("utf-8", "replace"))


def fill_result(ffi: Any, lib: Any, out: Any, result: GenerationResult) -> None:
    """Fill a zeroed `specdec_result` with copies the host frees.

    Raises:
        MemoryError: a copy could not be made; the ones made so far stay in `out`.
    """
    text = result.text.encode("utf-8", "replace")
    token_ids = ffi.new("int32_t[]", result.token_ids)
    document = result.to_dict()
    line = json.dumps(document, ensure_ascii=False, allow_nan=False)
    out.text, out.text_bytes = _copy(ffi, lib, text), len(text)
    out.token_ids = ffi.cast("int32_t *", _copy(ffi, lib, ffi.buffer(token_ids)))
    out.num_tokens = len(token_ids)
    out.finish_reason = _REASONS[result.finish_reason]
    out.json = _copy(ffi, lib, line.encode("utf-8", "replace"))
    for name, _ in ffi.typeof("specdec_stats").fields:
        setattr(out.stats, name, document["stats"][name])


def _copy(ffi: Any, lib: Any, data: Any) -> Any:
    view = ffi.from_buffer(data)
    copy = lib.specdec_native_copy(view, len(view))
    if copy == ffi.NULL:
        raise MemoryError(f"no memory for {len(view)} bytes of a result")
    return ffi.cast("char *", copy)
