"""What stands before the replicas: forwards requests, and sends one again whose replica died.

A request may be sent again until the first byte of its answer has gone to the client. It begins
anew then, at another replica, which changes nothing of its law; with a seed, nothing of its text.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from ray import serve
from ray.exceptions import ObjectLostError, RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount
from starlette.types import Message, Receive, Scope, Send

from specdec.runtime.serving.http.answers import error_body
from specdec.runtime.serving.http.faults import handlers
from specdec.runtime.serving.http.guard import Guard
from specdec.runtime.serving.http.settings import ServerSettings
from specdec.runtime.serving.ray_routing import prefix_key

__all__ = ["create_front"]

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.2
"""Before a request is sent again; grows with each attempt."""


class _Front:
    """Forwards each request to a replica of one deployment."""

    def __init__(self, deployment: str) -> None:
        self._replicas = serve.get_deployment_handle(deployment)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward until the answer is whole or the client has gone."""
        body = await Request(scope, receive).body()
        work = asyncio.ensure_future(self._answer(_told(scope), body, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            gone.cancel()
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await work

    async def _answer(self, told: Mapping[str, Any], body: bytes, send: Send) -> None:
        key = prefix_key(body) if body else ""
        for attempt in range(1, _ATTEMPTS + 1):
            start: Message | None = None
            begun = whole = False
            try:
                async for message in self._messages(key, told, body):
                    if message["type"] == "http.response.start":
                        start = message
                        continue
                    if not begun and start is not None:
                        begun = True
                        await send(start)
                    await send(message)
                    whole = not message.get("more_body", False)
                return
            except BackPressureError as error:
                refusal = error_body(str(error), "rate_limit_error", "busy")
                await _send(JSONResponse(refusal, 429, headers={"Retry-After": "1"}), send)
                return
            except (RayActorError, ObjectLostError, DeploymentUnavailableError):
                if whole:
                    return
                fault = error_body("the replica that ran the request died", "server_error", "lost")
                if begun:
                    event = b"data: " + json.dumps(fault).encode() + b"\n\n"
                    await send({"type": "http.response.body", "body": event, "more_body": False})
                    return
                if attempt == _ATTEMPTS:
                    await _send(JSONResponse(fault, 503), send)
                    return
                await asyncio.sleep(_PAUSE_SECONDS * attempt)

    async def _messages(
        self, key: str, told: Mapping[str, Any], body: bytes
    ) -> AsyncIterator[Message]:
        """What a replica's application sends; ended here, it is cancelled there."""
        answer = self._replicas.forward.options(stream=True).remote(key, told, body)
        ended = False
        try:
            async for message in answer:
                yield message
            ended = True
        finally:
            if not ended:
                answer.cancel()


def _told(scope: Scope) -> dict[str, Any]:
    """What a replica must know of a request beside its body."""
    names = ("method", "path", "raw_path", "query_string", "headers", "scheme", "http_version")
    told = {name: scope[name] for name in names if name in scope}
    root = scope.get("app_root_path", "")
    if root and told["path"].startswith(root):
        told["path"] = told["path"][len(root) :]
    return told


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(answer: JSONResponse, send: Send) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": answer.status_code,
            "headers": answer.raw_headers,
        }
    )
    await send({"type": "http.response.body", "body": bytes(answer.body)})


def create_front(deployment: str, settings: ServerSettings) -> Starlette:
    """The ASGI application before `deployment`; keys are checked behind it."""
    open_to_all = replace(settings, api_keys=frozenset())
    return Starlette(
        routes=[Mount("/", app=_Front(deployment))],
        middleware=[Middleware(Guard, settings=open_to_all)],
        exception_handlers=handlers(settings.max_body_bytes),
    )
