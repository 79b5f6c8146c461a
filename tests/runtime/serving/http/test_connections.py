"""Thousands of connections at once, most of them silent; and one that hardly reads."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase

import pytest

from tests.runtime.serving.http.conftest import Served, serving

CONNECTIONS = 2000
EVERY = 8
"""One of so many asks."""


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for both ends of all connections, which are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * CONNECTIONS + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"a process may have {hard} open files here; {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def converse(served: Served) -> list[tuple[int, str]]:
    """Open all, then ask on some of them at once; what was answered, in order."""
    ends = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(CONNECTIONS)]

    async def ask(number: int) -> tuple[int, str]:
        reader, writer = ends[number]
        letter = ascii_lowercase[number // EVERY % 25]
        body = {"model": "alphabet", "prompt": letter, "temperature": 0, "max_tokens": 2}
        content = json.dumps(body).encode()
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ")
        writer.write(str(len(content)).encode() + b"\r\n\r\n" + content)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        answer = json.loads(await reader.readexactly(length))
        return int(head.split()[1]), answer["choices"][0]["text"]

    answers = await asyncio.gather(*(ask(number) for number in range(0, CONNECTIONS, EVERY)))
    assert all(not writer.is_closing() for _, writer in ends)
    for _, writer in ends:
        writer.close()
    return list(answers)


def test_thousands_of_connections(package: Path, many_files: None) -> None:
    with serving(package, max_queue=CONNECTIONS) as served:
        before = open_files()
        answers = asyncio.run(converse(served))
        letters = [ascii_lowercase[i % 25 + 1 : i % 25 + 3] for i in range(CONNECTIONS // EVERY)]
        assert answers == [(200, text) for text in letters]
        deadline = time.monotonic() + 20
        while open_files() > before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert served.decoder.num_running == served.decoder.num_waiting == 0


def test_a_slow_reader_holds_no_slot(package: Path) -> None:
    """Its text waits for it, while the only slot serves others."""
    body = {"model": "alphabet", "prompt": "a", "temperature": 0, "stream": True, "logprobs": 20}
    content = json.dumps(body | {"ignore_eos": True, "max_tokens": 12_000}).encode()
    with serving(package, num_slots=1) as served, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(60)
        slow.connect(("127.0.0.1", served.port))
        slow.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: ")
        slow.sendall(str(len(content)).encode() + b"\r\n\r\n" + content)
        received = slow.recv(100)
        deadline = time.monotonic() + 60
        while served.decoder.counters.finished != {"length": 1}:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert served.decoder.generate("x").text == "yz"
        parts = [received]
        while part := slow.recv(1 << 20):
            parts.append(part)
    text = b"".join(parts)
    assert len(text) > 6_000_000  # more than the sockets' own buffers hold
    assert text.endswith(b"data: [DONE]\n\n")
    assert text.count(b'"finish_reason": "length"') == 1
