"""Errors as answers in OpenAI's form: one line that says what was got and what is allowed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from specdec.runtime.errors import (
    BusyError,
    ClosedError,
    NotBegunError,
    NoTokenLeftError,
    SpecdecError,
)
from specdec.runtime.serving.http.answers import error_body
from specdec.runtime.serving.http.guard import BodyTooLargeError, too_large
from specdec.runtime.serving.http.streams import TimedOutError

__all__ = ["UnknownModelError", "handlers"]

Handler = Callable[[Request, Exception], Awaitable[Response]]


class UnknownModelError(Exception):
    """A request asks for a model that is not served here."""


def handlers(max_body_bytes: int) -> Mapping[Any, Handler]:
    """What answers each class of error."""

    async def large(request: Request, error: Exception) -> Response:
        return too_large(max_body_bytes)

    return {
        ValidationError: _invalid,
        SpecdecError: _refused,
        UnknownModelError: _unknown,
        TimedOutError: _late,
        ClientDisconnect: _left,
        HTTPException: _http,
        BodyTooLargeError: large,
    }


async def _invalid(request: Request, error: Exception) -> Response:
    """What is wrong with a body: the first three faults, each with its field."""
    assert isinstance(error, ValidationError)
    faults = []
    for fault in error.errors(include_url=False, include_input=False, include_context=False)[:3]:
        place = ".".join(str(part) for part in fault["loc"]) or "the body"
        known = fault["type"] != "extra_forbidden"
        faults.append(f"{place}: {fault['msg']}" if known else f"{place}: unknown field")
    return JSONResponse(error_body("; ".join(faults), "invalid_request_error", "invalid_body"), 400)


async def _refused(request: Request, error: Exception) -> Response:
    """An error of the runtime: the caller's, or, where it is the engine's, ours."""
    assert isinstance(error, SpecdecError)
    code = f"specdec_{error.code}"
    if isinstance(error, BusyError):
        body = error_body(str(error), "rate_limit_error", "busy")
        return JSONResponse(body, 429, headers={"Retry-After": "1"})
    if isinstance(error, NotBegunError):  # its time was over while its prompt was made
        return JSONResponse(error_body(str(error), "timeout_error", code), 504)
    if isinstance(error, ClosedError):
        return JSONResponse(error_body("the server is ending", "server_error", code), 503)
    caller = isinstance(error, (ValueError, NoTokenLeftError))
    kind = "invalid_request_error" if caller else "server_error"
    return JSONResponse(error_body(str(error), kind, code), 400 if caller else 500)


async def _unknown(request: Request, error: Exception) -> Response:
    return JSONResponse(error_body(str(error), "invalid_request_error", "model_not_found"), 404)


async def _late(request: Request, error: Exception) -> Response:
    return JSONResponse(error_body(str(error), "timeout_error", "timeout"), 504)


async def _left(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse(error_body(message, "invalid_request_error"), error.status_code)
