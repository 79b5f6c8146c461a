"""A server on this machine over the package that recites the alphabet."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

import uvicorn

from specdec.runtime.serving import BatchDecoder
from specdec.runtime.serving.http.app import create_app
from specdec.runtime.serving.http.settings import ServerSettings
from tests.cli.alphabet_package import write_alphabet_package

KEY = "sk-test"


@dataclass(frozen=True)
class Served:
    """A running server."""

    url: str
    port: int
    decoder: BatchDecoder


@contextmanager
def serving(
    package: Path, num_slots: int = 3, max_queue: int = 50, **settings: Any
) -> Iterator[Served]:
    """Serve until the end of the block."""
    decoder = BatchDecoder.load(package, num_slots=num_slots, max_queue=max_queue, num_threads=1)
    app = create_app(decoder, ServerSettings(model="alphabet", **settings))
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield Served(f"http://127.0.0.1:{port}", port, decoder)
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of all servers."""
    return write_alphabet_package(tmp_path_factory.mktemp("serving") / "alphabet")


@pytest.fixture(scope="module")
def served(package: Path) -> Iterator[Served]:
    """One server for most tests."""
    with serving(package) as running:
        yield running
