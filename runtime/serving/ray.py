"""`specdec.runtime.serving.ray:app` deploys the server on a Ray cluster: replicas and a front.

    serve run specdec.runtime.serving.ray:app package=/models/pair max_replicas=4

Each replica holds the package and a `BatchDecoder`; the front forwards to them over HTTP's own
messages, so that what a client sees is what `specdec-serve` answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ray import serve
from ray.serve.config import RequestRouterConfig
from starlette.applications import Starlette
from starlette.types import Message, Scope

from specdec.runtime.serving.http.app import create_app
from specdec.runtime.serving.ray_front import create_front
from specdec.runtime.serving.ray_routing import PrefixRouter
from specdec.runtime.serving.ray_settings import RaySettings

__all__ = ["Replica", "app"]

REPLICAS = "replicas"
_FRONT_REQUESTS = 4096
_HEALTH_SECONDS = 5.0


class Replica:
    """One loaded package and the application over it."""

    def __init__(self, settings: RaySettings) -> None:
        """Load; errors as `BatchDecoder.load`."""
        self._decoder = settings.load()
        self._app = create_app(self._decoder, settings.server())

    async def forward(
        self, key: str, told: Mapping[str, Any], body: bytes
    ) -> AsyncIterator[Message]:
        """Run the application on a request and yield what it sends.

        Args:
            key: of the request's prefix, for the router.
            told: of ASGI's scope, what the front knows.
            body: whole.
        """
        sent: asyncio.Queue[Message | None] = asyncio.Queue()
        incoming = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if incoming:
                return incoming.pop()
            await asyncio.Event().wait()  # a client that leaves cancels the call instead
            raise AssertionError

        async def run() -> None:
            try:
                await self._app(_scope(told), receive, sent.put)
            finally:
                sent.put_nowait(None)

        work = asyncio.ensure_future(run())
        try:
            while (message := await sent.get()) is not None:
                yield message
            await work
        finally:
            work.cancel()

    def check_health(self) -> None:
        """Asked by Ray Serve, which replaces a replica that raises."""
        if not self._decoder.is_alive:
            raise RuntimeError("the decoder's scheduler has ended")

    def __del__(self) -> None:
        """Free the engines when Ray Serve ends the replica."""
        if hasattr(self, "_decoder"):
            self._decoder.close()


def _scope(told: Mapping[str, Any]) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "root_path": "",
        "client": None,
        "server": None,
        "state": {},
        **told,
    }


def app(arguments: Mapping[str, Any]) -> serve.Application:
    """Build the deployments.

    Args:
        arguments: the fields of `RaySettings`; `package` alone is needed.

    Raises:
        InvalidParameterError: as `RaySettings.read`.
    """
    settings = RaySettings.read(arguments)
    server = settings.server()

    def build_front() -> Starlette:
        return create_front(REPLICAS, server)

    replicas = serve.deployment(
        Replica,
        name=REPLICAS,
        ray_actor_options={"num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus},
        autoscaling_config={
            "min_replicas": settings.min_replicas,
            "max_replicas": settings.max_replicas,
            "target_ongoing_requests": settings.num_slots,
        },
        # One waits in the replica, so that a slot that gets free is taken at once.
        max_ongoing_requests=settings.num_slots + 1,
        max_queued_requests=settings.max_queue,
        graceful_shutdown_timeout_s=settings.grace_seconds,
        health_check_period_s=_HEALTH_SECONDS,
        request_router_config=RequestRouterConfig(request_router_class=PrefixRouter),
    )
    front = serve.deployment(
        serve.ingress(build_front)(),
        name="front",
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=_FRONT_REQUESTS,
        graceful_shutdown_timeout_s=settings.grace_seconds,
    )
    return front.bind(replicas.bind(settings))
