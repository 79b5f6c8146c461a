"""examples/cpp/service.cpp: events of several requests at once, clients that leave, an end."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from specdec.runtime import SamplingParams, SpeculativeDecoder

PLAIN = {"Content-Type": "text/plain"}


@contextmanager
def serving(examples: Path, package: Path, num_decoders: int) -> Iterator[int]:
    """Run the service on a free port; it must end in order when asked to."""
    program = examples / "service"
    if not program.exists():
        pytest.skip("cpp-httplib is not installed")
    command = [str(program), str(package), "0", str(num_decoders)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first.startswith("listening on http://127.0.0.1:"), first
            yield int(first.rsplit(":", 1)[1])
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def ask(port: int, prompt: str, **options: object) -> list[tuple[str, object]]:
    """The events of one request, their data decoded."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", f"/generate?{urlencode(options)}", prompt.encode(), PLAIN)
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "text/event-stream"
    events = []
    for block in response.read().decode().strip().split("\n\n"):
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    connection.close()
    return events


def test_concurrent_requests_get_their_own_text(examples: Path, alphabet: Path) -> None:
    letters = "abcdefghijkl"
    with serving(examples, alphabet, 3) as port, ThreadPoolExecutor(len(letters)) as threads:
        answers = list(threads.map(lambda letter: ask(port, letter, max_new_tokens=9), letters))
    for letter, events in zip(letters, answers, strict=True):
        start = ord(letter) + 1
        expected = "".join(map(chr, range(start, start + 9)))
        assert "".join(data for name, data in events if name == "text") == expected
        name, result = events[-1]
        assert name == "done"
        assert result["text"] == expected
        assert result["finish_reason"] == "length"


def test_a_wrong_option_is_an_event(examples: Path, alphabet: Path) -> None:
    with serving(examples, alphabet, 1) as port:
        [(name, data)] = ask(port, "a", max_new_tokns=3)
        assert name == "error"
        assert data["code"] == 31
        assert ask(port, "a", max_new_tokens=1)[-1][0] == "done"


def test_a_client_that_leaves_frees_the_decoder(examples: Path, alphabet: Path) -> None:
    """The request left behind would take minutes; the one after it has no other decoder."""
    with serving(examples, alphabet, 1) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        query = urlencode({"max_new_tokens": 290_000, "ignore_eos": "true"})
        connection.request("POST", f"/generate?{query}", b"a", PLAIN)
        response = connection.getresponse()
        assert response.read(10) == b"event: tex"
        response.close()
        connection.close()
        assert ask(port, "x", max_new_tokens=1)[-1][0] == "done"


def test_the_demo_package_behind_http(examples: Path, demo_package: Path) -> None:
    prompts = ["The capital of France is", "Water boils at", "A haiku about rain:\n"]
    params = SamplingParams(max_new_tokens=12, num_draft_tokens=3)
    with SpeculativeDecoder.load(demo_package, verify_checksums=False) as decoder:
        expected = [decoder.generate(prompt, params).text for prompt in prompts]
    with serving(examples, demo_package, 2) as port, ThreadPoolExecutor(3) as threads:
        answers = list(
            threads.map(lambda p: ask(port, p, max_new_tokens=12, num_draft_tokens=3), prompts)
        )
    assert [events[-1][1]["text"] for events in answers] == expected  # type: ignore[index]
