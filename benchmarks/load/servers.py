"""Servers that a load is put on: started as processes, and ended with the block."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Server", "llama_server", "our_server"]

_START_SECONDS = 120.0
_END_SECONDS = 60.0


@dataclass(frozen=True)
class Server:
    """Where to ask, and how."""

    name: str
    url: str
    """With /v1 at its end."""
    model: str
    key: str = "none"
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of each request beside the usual ones."""
    process: int | None = None
    """Its process id, where it was started here."""


@contextmanager
def our_server(package: Path, arguments: Sequence[str], name: str = "specdec") -> Iterator[Server]:
    """`specdec-serve` over a package, with arguments of its own.

    Raises:
        subprocess.SubprocessError: it did not start; its own words are on standard error.
    """
    program = "from specdec.cli.serve import main; main()"
    command = [sys.executable, "-c", program, str(package), "--port", "0", *arguments]
    with _process(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if not words:
            raise subprocess.SubprocessError(f"specdec-serve ended with {process.wait()}")
        extra = {"ignore_eos": True, "stream_options": {"include_usage": True}}
        yield Server(name, f"{words[0]}/v1", words[-1], extra=extra, process=process.pid)


@contextmanager
def llama_server(model: Path, threads: int | None) -> Iterator[Server]:
    """llama.cpp's server from llama-cpp-python, over a GGUF file.

    It runs one request at a time and ends texts at the model's end token.

    Raises:
        subprocess.SubprocessError: it did not start, as where it is not installed.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(model)]
    command += ["--port", str(port), "--n_ctx", "4096", "--model_alias", "llama"]
    command += [] if threads is None else ["--n_threads", str(threads)]
    with _process(command, stdout=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}/v1"
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(f"{url}/models"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise subprocess.SubprocessError(
                    "llama_cpp.server did not start; run: pip install 'llama-cpp-python[server]'"
                )
            time.sleep(0.2)
        yield Server("llama.cpp", url, "llama")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def _process(command: Sequence[str], stdout: int) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=stdout, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
