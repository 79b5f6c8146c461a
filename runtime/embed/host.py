"""Numeric handles of decoders and sessions for a host, checked at every call.

A handle is `2 * count + kind` with a count that never repeats, so a handle that was closed, is
of the other kind, or was invented is never taken for an open one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.decoding.results import Chunk, GenerationResult
from specdec.runtime.decoding.session import Session
from specdec.runtime.decoding.stream import GenerationStream
from specdec.runtime.embed.errors import BadHandleError
from specdec.runtime.embed.slot import Slot
from specdec.runtime.errors import ClosedError, UnsupportedOptionError
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.text.prompts import Prompt

__all__ = ["DECODER", "SESSION", "Host", "Request"]

DECODER, SESSION = 0, 1
_KINDS = ("decoder", "session")


@dataclass(frozen=True)
class Request:
    """Arguments of one call."""

    prompt: Prompt
    params: SamplingParams
    tools: Sequence[Mapping[str, Any]] | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    reuse_prefix: bool = False
    over_defaults: Mapping[str, Any] | None = None
    """Sampling options to lay over those of the model's package, in place of `params`."""


@dataclass(frozen=True)
class _Entry:
    decoder: SpeculativeDecoder
    session: Session | None
    slot: Slot


class Host:
    """Every decoder and session one process has open; methods may be called from any thread."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._count = 0
        self._lock = threading.Lock()

    def add(self, decoder: SpeculativeDecoder) -> int:
        """Take over a decoder and return its handle."""
        return self._insert(_Entry(decoder, None, Slot(decoder.cancel)), DECODER)

    def decoder(self, handle: int) -> SpeculativeDecoder:
        """The decoder of a handle; errors as every method: `BadHandleError`, `ClosedError`."""
        return self._find(handle, DECODER).decoder

    def open_session(self, handle: int) -> int:
        """Open a session on a decoder and return its handle."""
        entry = self._find(handle, DECODER)
        session = entry.decoder.session()
        return self._insert(_Entry(entry.decoder, session, entry.slot), SESSION)

    def generate(
        self, handle: int, kind: int, request: Request, on_chunk: Callable[[Chunk], bool] | None
    ) -> GenerationResult:
        """Generate and wait for the end.

        Args:
            on_chunk: called with each chunk; True cancels.

        Raises:
            BusyError: a generation runs on this decoder.
            NotBegunError: `cancel` came while a prompt was made from messages.
            SpecdecError: as `SpeculativeDecoder.stream`, and what `on_chunk` raises.
        """
        entry = self._find(handle, kind)
        with entry.slot.entered(handle), _open_stream(entry, request) as stream:
            entry.slot.attach(stream)
            for chunk in stream:
                if on_chunk is not None and on_chunk(chunk):
                    stream.close()
                    break
            result = stream.result
        assert result is not None, "a stream that ended has a result"
        return result

    def cancel(self, handle: int, kind: int) -> None:
        """End the running generation of a decoder, or of one session, before its next round."""
        entry = self._find(handle, kind)
        entry.slot.cancel(handle if kind == SESSION else None)

    def reset(self, handle: int) -> None:
        """Forget a session's turns; `BusyError` while it generates."""
        entry = self._find(handle, SESSION)
        with entry.slot.entered(handle):
            assert entry.session is not None
            entry.session.reset()

    def close(self, handle: int, kind: int) -> None:
        """Cancel and wait, then free a session, or a decoder with all its sessions.

        Raises:
            BusyError: called in a callback of the very generation.
        """
        entry = self._find(handle, kind)
        entry.slot.check_elsewhere()
        with self._lock:
            if self._entries.pop(handle, None) is None:
                raise _closed(kind)
            if kind == DECODER:
                same = [h for h, other in self._entries.items() if other.slot is entry.slot]
                for session in same:
                    del self._entries[session]
        if entry.session is not None:
            entry.slot.wait(handle)
            entry.session.close()
        else:
            entry.slot.close()
            entry.decoder.close()

    def _insert(self, entry: _Entry, kind: int) -> int:
        with self._lock:
            self._count += 1
            handle = 2 * self._count + kind
            self._entries[handle] = entry
            return handle

    def _find(self, handle: int, kind: int) -> _Entry:
        entry = self._entries.get(handle)
        if entry is not None and handle % 2 == kind:
            return entry
        if 1 <= handle // 2 <= self._count and handle % 2 == kind:
            raise _closed(kind)
        raise BadHandleError(
            f"{handle:#x} is no handle of a {_KINDS[kind]}; "
            f"pass one that opening a {_KINDS[kind]} gave"
        )


def _open_stream(entry: _Entry, request: Request) -> GenerationStream:
    params = request.params
    if request.over_defaults is not None:
        params = entry.decoder.defaults.params(request.over_defaults)
    given: dict[str, Any] = {
        "tools": request.tools,
        "chat_template_kwargs": request.chat_template_kwargs,
    }
    if entry.session is None:
        return entry.decoder.stream(
            request.prompt, params, **given, reuse_prefix=request.reuse_prefix
        )
    if request.reuse_prefix:
        raise UnsupportedOptionError(
            "reuse_prefix is for a decoder; a session always keeps its prefix: leave it out"
        )
    return entry.session.stream(request.prompt, params, **given)


def _closed(kind: int) -> ClosedError:
    return ClosedError(f"the {_KINDS[kind]} is closed; open another")
