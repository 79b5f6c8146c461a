"""The Python side of `libspecdec.so`: converts C arguments, results and errors.

Runs inside the embedded interpreter. `attach` gives every function of internal.h's "python"
part its implementation; `ffi` and `lib` are cffi's view of the C side. cffi takes the
interpreter's lock on the way in and releases it around every call of `lib`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from specdec.engines.onnxruntime.options import OrtOptions
from specdec.runtime import SpecdecError, SpeculativeDecoder
from specdec.runtime.embed.c_engine import open_engines
from specdec.runtime.embed.c_results import ChunkCaller, fill_result
from specdec.runtime.embed.documents import (
    check_names,
    read_messages,
    read_options,
    read_request,
)
from specdec.runtime.embed.errors import BadArgumentError, EmbedError
from specdec.runtime.embed.host import Host
from specdec.runtime.text.prompts import Prompt

__all__ = ["attach", "report"]

_INTERNAL = 99
_INTERNAL_VERSION = 1
_LOAD_OPTIONS = (
    "device",
    "draft_device",
    "verify_checksums",
    "num_threads",
    "drafter",
    "chat_template",
)
_ORT_OPTIONS = tuple(field.name for field in fields(OrtOptions))


def attach(ffi: Any, lib: Any) -> None:
    """Implement the C interface; called once, when the library starts.

    Raises:
        EmbedError: the library was built by another release.
    """
    if lib.SPECDEC_INTERNAL_VERSION != _INTERNAL_VERSION:
        raise EmbedError(
            "libspecdec.so and the installed specdec are of different releases; "
            "run python -m specdec.runtime.embed build again"
        )
    side = _PythonSide(ffi, lib)
    for name in ("open", "open_engines", "info", "generate", "cancel", "close"):
        _export(ffi, lib, f"specdec_py_{name}", getattr(side, name))
    for name in ("session_open", "session_reset"):
        _export(ffi, lib, f"specdec_py_{name}", getattr(side, name))


def report(lib: Any, error: BaseException) -> int:
    """Make an exception the thread's last error; returns its code."""
    if isinstance(error, SpecdecError):
        code, message = error.code, str(error)
    else:
        code, message = _INTERNAL, f"{type(error).__name__}: {error}"
    line = " ".join(message.replace("\0", " ").split())
    return int(lib.specdec_native_fail(code, line.encode("utf-8", "replace")))


def _export(ffi: Any, lib: Any, name: str, function: Callable[..., None]) -> None:
    def guarded(*arguments: Any) -> int:
        try:
            function(*arguments)
        except BaseException as error:  # nothing may cross into C
            return report(lib, error)
        return 0

    ffi.def_extern(name=name, error=_INTERNAL)(guarded)


class _PythonSide:
    def __init__(self, ffi: Any, lib: Any) -> None:
        self._ffi = ffi
        self._lib = lib
        self._host = Host()

    def open(self, path: Any, options: Any, out: Any) -> None:
        given = read_options(self._bytes(options))
        check_names(given, (*_LOAD_OPTIONS, *_ORT_OPTIONS))
        ort = OrtOptions(**{name: given.pop(name) for name in _ORT_OPTIONS if name in given})
        folder = os.fsdecode(self._ffi.string(path))
        out[0] = self._host.add(SpeculativeDecoder.load(folder, ort=ort, **given))

    def open_engines(self, target: Any, draft: Any, options: Any, out: Any) -> None:
        given = read_options(self._bytes(options))
        out[0] = self._host.add(open_engines(self._ffi, self._lib, target, draft, given))

    def info(self, decoder: int, out: Any) -> None:
        found = self._host.decoder(decoder)
        out.max_length = found.max_length
        out.has_chat_template = found.has_chat_template

    def generate(
        self,
        handle: int,
        kind: int,
        prompt: Any,
        options: Any,
        callback: Any,
        user: Any,
        out: Any,
    ) -> None:
        request = read_request(self._prompt(prompt), self._bytes(options))
        on_chunk = None
        if callback != self._ffi.NULL:
            on_chunk = ChunkCaller(self._ffi, self._lib, callback, user)
        result = self._host.generate(handle, kind, request, on_chunk)
        if out != self._ffi.NULL:
            fill_result(self._ffi, self._lib, out, result)

    def session_open(self, decoder: int, out: Any) -> None:
        out[0] = self._host.open_session(decoder)

    def session_reset(self, session: int) -> None:
        self._host.reset(session)

    def cancel(self, handle: int, kind: int) -> None:
        self._host.cancel(handle, kind)

    def close(self, handle: int, kind: int) -> None:
        self._host.close(handle, kind)

    def _bytes(self, text: Any) -> bytes | None:
        return None if text == self._ffi.NULL else self._ffi.string(text)

    def _prompt(self, prompt: Any) -> Prompt:
        """Copy what a `specdec_prompt` points at."""
        ffi, lib = self._ffi, self._lib
        kind, size = prompt.kind, prompt.size
        if size and prompt.data == ffi.NULL:
            raise BadArgumentError("the prompt's data is NULL and its size is not 0")
        width = 4 if kind == lib.SPECDEC_TOKENS else 1
        data = bytes(ffi.buffer(prompt.data, size * width)) if size else b""
        if kind == lib.SPECDEC_TOKENS:
            tokens: list[int] = np.frombuffer(data, np.int32).tolist()
            return tokens
        if kind == lib.SPECDEC_MESSAGES:
            return read_messages(data)
        if kind != lib.SPECDEC_TEXT:
            raise BadArgumentError(f"the prompt's kind is {kind}; allowed is 0, 1 or 2")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadArgumentError(f"the prompt is not UTF-8: {error}") from error
