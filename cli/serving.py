"""Listen, say where, and serve until the process is asked to end."""

from __future__ import annotations

import socket

import click
import uvicorn

from specdec.runtime.serving.batch_decoder import BatchDecoder
from specdec.runtime.serving.http.app import create_app
from specdec.runtime.serving.http.settings import ServerSettings

__all__ = ["serve"]

_GRACE_SECONDS = 30
"""How long requests in progress may take once the process is asked to end."""
_BACKLOG = 2048


def serve(decoder: BatchDecoder, settings: ServerSettings, host: str, port: int) -> None:
    """Serve `decoder` until SIGINT or SIGTERM; requests in progress are finished first.

    Raises:
        click.ClickException: the address cannot be listened on.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another "
            "--host or --port"
        ) from error
    with listener:
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        click.echo(f"http://{shown}:{listener.getsockname()[1]}  serves {settings.model}")
        config = uvicorn.Config(
            create_app(decoder, settings),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            server_header=False,
        )
        uvicorn.Server(config).run(sockets=[listener])
