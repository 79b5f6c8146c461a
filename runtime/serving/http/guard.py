"""What is refused before a request is looked at: no key, too many bytes."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdec.runtime.serving.http.answers import error_body
from specdec.runtime.serving.http.settings import ServerSettings

__all__ = ["BodyTooLargeError", "Guard"]

_OPEN = {"/", "/health", "/ready", "/page.js", "/page.css"}
"""Paths that need no key: the page asks for one itself."""


class BodyTooLargeError(Exception):
    """More bytes came than are allowed."""


class Guard:
    """ASGI middleware: keys and body size."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        """Wrap an application."""
        self._app = app
        self._settings = settings
        self._keys = [f"Bearer {key}".encode() for key in sorted(settings.api_keys)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is allowed."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if self._keys and scope["path"] not in _OPEN and scope["method"] != "OPTIONS":
            given = headers.get("authorization", "").encode()
            if not sum(hmac.compare_digest(given, key) for key in self._keys):
                body = error_body(
                    "no valid API key was given; send one as 'Authorization: Bearer KEY'",
                    "invalid_request_error",
                    "invalid_api_key",
                )
                answer = JSONResponse(body, 401, headers={"WWW-Authenticate": "Bearer"})
                await answer(scope, receive, send)
                return
        limit = self._settings.max_body_bytes
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            await too_large(limit)(scope, receive, send)
            return
        await self._app(scope, _counted(receive, limit), send)


def too_large(limit: int) -> JSONResponse:
    """The answer to a body above `limit` bytes."""
    message = f"the request has more bytes than the {limit} that are allowed; shorten it"
    return JSONResponse(error_body(message, "invalid_request_error", "body_too_large"), 413)


def _counted(receive: Receive, limit: int) -> Receive:
    """`receive`, until more than `limit` bytes have come."""
    total = 0

    async def counting() -> Message:
        nonlocal total
        message = await receive()
        if message["type"] == "http.request":
            total += len(message.get("body", b""))
            if total > limit:
                raise BodyTooLargeError
        return message

    return counting
