"""The application: routes from OpenAI's API to `AsyncDecoder`, and errors in its form."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from importlib.resources import files
from time import time
from typing import Any, TypeVar
from uuid import uuid4

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from specdec.runtime.decoding.results import GenerationResult
from specdec.runtime.errors import InvalidParameterError
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.serving.asynchronous import AsyncDecoder, AsyncStream
from specdec.runtime.serving.batch_decoder import BatchDecoder
from specdec.runtime.serving.http.answers import (
    ChatAnswers,
    CompletionAnswers,
    figures,
)
from specdec.runtime.serving.http.faults import UnknownModelError, handlers
from specdec.runtime.serving.http.guard import Guard
from specdec.runtime.serving.http.metrics import Metrics
from specdec.runtime.serving.http.settings import ServerSettings
from specdec.runtime.serving.http.streams import EventStream, sse, timed
from specdec.runtime.serving.http.wire import ChatRequest, CompletionRequest, GenerationRequest
from specdec.runtime.text.codec import TextCodec
from specdec.runtime.text.prompts import Prompt

__all__ = ["create_app"]

_Body = TypeVar("_Body", bound=GenerationRequest)
_PAGE = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:"
)


class _Server:
    """The handlers of one application."""

    def __init__(self, decoder: BatchDecoder, settings: ServerSettings) -> None:
        if decoder.codec is None:
            raise InvalidParameterError(
                "the decoder has no tokenizer; a server needs one: load it from a package"
            )
        self._decoder, self._codec = AsyncDecoder(decoder), decoder.codec
        self._settings = settings
        self._created = int(time())
        self.metrics = Metrics(decoder)

    async def models(self, request: Request) -> Response:
        """The one model."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """Facts about the model by name."""
        self._check_model(request.path_params["name"])
        return JSONResponse(self._model())

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body = await self._read(request, ChatRequest)
        messages = [message.for_template() for message in body.messages]
        streams = await self._start(body, [messages], body.offered_tools)
        answers = ChatAnswers(*self._labels())
        if body.stream:
            return self._streaming(body, answers, streams, 1)
        results = await self._results(request, streams)
        return self._answer(body, answers.whole(results), results)

    async def complete(self, request: Request) -> Response:
        """POST /v1/completions."""
        body = await self._read(request, CompletionRequest)
        prompts: Sequence[Prompt] = body.prompts
        streams = await self._start(body, prompts, None)
        answers = CompletionAnswers(*self._labels())
        if body.stream:
            return self._streaming(body, answers, streams, len(prompts))
        results = await self._results(request, streams)
        return self._answer(body, answers.whole(results, len(prompts)), results)

    async def health(self, request: Request) -> Response:
        """Whether the scheduler runs: a process that says no must be started again."""
        alive = self._decoder.decoder.is_alive
        return JSONResponse({"status": "ok" if alive else "ended"}, 200 if alive else 503)

    async def ready(self, request: Request) -> Response:
        """Whether a request would be taken now."""
        decoder = self._decoder.decoder
        state = {"running": decoder.num_running, "waiting": decoder.num_waiting}
        return JSONResponse({"ready": decoder.has_room, **state}, 200 if decoder.has_room else 503)

    async def told(self, request: Request) -> Response:
        """GET /metrics."""
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def page(self, request: Request) -> Response:
        """The page to try the model, and its parts."""
        name, kind = _PAGE[request.url.path]
        content = (files(__package__) / "data" / name).read_bytes()
        headers = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}
        return Response(content, media_type=kind, headers=headers)

    def _model(self) -> dict[str, Any]:
        info = self._decoder.decoder.info
        return {
            "id": self._settings.model,
            "object": "model",
            "created": self._created,
            "owned_by": "specdec",
            "max_model_len": info.max_length,
        }

    def _labels(self) -> tuple[str, str, int, TextCodec]:
        return uuid4().hex, self._settings.model, int(time()), self._codec

    def _check_model(self, name: str) -> None:
        if name != self._settings.model:
            raise UnknownModelError(
                f"model is {name!r}; allowed is {self._settings.model!r}, the one served here"
            )

    async def _read(self, request: Request, kind: type[_Body]) -> _Body:
        """The body, checked.

        Raises:
            ValidationError, UnknownModelError: it is not what this server takes.
        """
        body = kind.model_validate_json(await request.body())
        self._check_model(body.model)
        return body

    async def _start(
        self,
        body: GenerationRequest,
        prompts: Sequence[Prompt],
        tools: Sequence[dict[str, Any]] | None,
    ) -> list[AsyncStream]:
        """Queue every choice of every prompt, or none of them."""
        limit = self._settings.max_seconds
        params = [SamplingParams.from_dict(body.sampling_options(i)) for i in range(body.n)]
        streams: list[AsyncStream] = []
        try:
            for prompt in prompts:
                for each in params:
                    stream = await self._decoder.stream(
                        prompt,
                        each,
                        tools=tools,
                        priority=body.priority,
                        timeout=min(body.timeout or limit, limit),
                    )
                    streams.append(stream)
        except BaseException:
            await _close(streams)
            raise
        return streams

    async def _results(
        self, request: Request, streams: Sequence[AsyncStream]
    ) -> list[GenerationResult]:
        """Wait for all choices; a client that leaves ends them."""
        work = asyncio.gather(*(timed(stream, self.metrics) for stream in streams))
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            either: set[asyncio.Future[Any]] = {work, gone}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientDisconnect
            return list(work.result())
        finally:
            gone.cancel()
            work.cancel()
            await _close(streams)
            with contextlib.suppress(BaseException):
                await work

    def _answer(
        self, body: GenerationRequest, document: dict[str, Any], results: list[GenerationResult]
    ) -> Response:
        if body.specdec_details:
            plain = self._decoder.decoder.plain_tokens_per_second
            document["specdec"] = [figures(result.stats, plain) for result in results]
        return JSONResponse(document)

    def _streaming(
        self,
        body: GenerationRequest,
        answers: ChatAnswers | CompletionAnswers,
        streams: list[AsyncStream],
        num_prompts: int,
    ) -> Response:
        decoder = self._decoder.decoder
        events = sse(body, answers, streams, num_prompts, self.metrics, decoder)
        return EventStream(events, streams)


async def _disconnected(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _close(streams: Sequence[AsyncStream]) -> None:
    for stream in streams:
        await stream.aclose()


def create_app(decoder: BatchDecoder, settings: ServerSettings) -> Starlette:
    """The ASGI application over `decoder`, which it closes at its end."""
    server = _Server(decoder, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(decoder.close)

    middleware = [Middleware(Guard, settings=settings)]
    if settings.cors_origins:
        allowed = Middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
        middleware.insert(0, allowed)
    return Starlette(
        routes=[
            Route("/v1/models", server.models),
            Route("/v1/models/{name:path}", server.model),
            Route("/v1/chat/completions", server.chat, methods=["POST"]),
            Route("/v1/completions", server.complete, methods=["POST"]),
            Route("/health", server.health),
            Route("/ready", server.ready),
            Route("/metrics", server.told),
            *(Route(path, server.page) for path in _PAGE),
        ],
        middleware=middleware,
        exception_handlers=handlers(settings.max_body_bytes),
        lifespan=lifespan,
    )
