"""Keys, limits, deadlines, bad clients, metrics and the page."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx", reason="the HTTP client of the tests is not installed")

from specdec.runtime.serving import BatchDecoder  # noqa: E402
from specdec.runtime.serving.http.app import create_app  # noqa: E402
from specdec.runtime.serving.http.settings import ServerSettings  # noqa: E402
from tests.runtime.serving.http.conftest import KEY, Served, serving  # noqa: E402

LONG = {"model": "alphabet", "temperature": 0, "ignore_eos": True, "max_tokens": 100_000}


def ask(served: Served, **fields: Any) -> httpx.Response:
    body = {"model": "alphabet", "temperature": 0, "messages": [{"role": "user", "content": "a"}]}
    return httpx.post(f"{served.url}/v1/chat/completions", json=body | fields, timeout=30)


def idle(served: Served, seconds: float = 20.0) -> bool:
    """Wait until nothing runs."""
    deadline = time.monotonic() + seconds
    while served.decoder.num_running or served.decoder.num_waiting:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_keys(package: Path) -> None:
    with serving(package, api_keys=frozenset([KEY, "another"])) as served:
        for headers, code in (
            ({}, 401),
            ({"Authorization": "Bearer sk-tes"}, 401),
            ({"Authorization": KEY}, 401),
            ({"Authorization": f"Bearer {KEY}"}, 200),
            ({"Authorization": "Bearer another"}, 200),
        ):
            answer = httpx.get(f"{served.url}/v1/models", headers=headers)
            assert answer.status_code == code
        assert answer.json()["data"][0]["id"] == "alphabet"
        assert httpx.get(f"{served.url}/metrics").status_code == 401
        assert httpx.get(f"{served.url}/health").json() == {"status": "ok"}


def test_bodies_have_a_limit(package: Path) -> None:
    with serving(package, max_body_bytes=2000) as served:
        assert ask(served, max_tokens=1).status_code == 200
        big = b'{"model": "' + b"x" * 5000 + b'"}'
        url = f"{served.url}/v1/chat/completions"
        for content in (big, iter([big])):  # with its length told, and in chunks without
            answer = httpx.post(url, content=content)
            assert answer.status_code == 413
            assert "2000" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[]", "valid dictionary|object"),
        (b'{"model": "\xff"}', "JSON|unicode|UTF"),
        (
            b'{"model": "alphabet", "messages": [{"role": "user", "content": "\\ud800"}]}',
            "JSON|surrogate|unicode",
        ),
        (
            b'{"model": "alphabet", "temperature": NaN, "messages": [{"role": "user"}]}',
            "temperature|JSON",
        ),
    ],
)
def test_bodies_that_are_none(served: Served, content: bytes, message: str) -> None:
    answer = httpx.post(f"{served.url}/v1/chat/completions", content=content)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert re.search(message, error["message"])
    assert "\n" not in error["message"]


def test_a_full_queue_says_busy(package: Path) -> None:
    with serving(package, num_slots=1, max_queue=0) as served:
        url = f"{served.url}/v1/completions"
        with httpx.stream("POST", url, json=LONG | {"prompt": "a", "stream": True}) as stream:
            assert stream.status_code == 200, stream.read()
            lines = stream.iter_lines()  # kept: the response is closed with it
            next(lines)
            answer = ask(served)
            assert answer.status_code == 429
            assert answer.headers["retry-after"] == "1"
            assert "1 requests run and 0 wait" in answer.json()["error"]["message"]
            assert httpx.get(f"{served.url}/ready").status_code == 503
        assert idle(served)
        assert ask(served).status_code == 200


def test_a_client_that_leaves_frees_its_slot(package: Path) -> None:
    with serving(package, num_slots=1) as served:
        url = f"{served.url}/v1/completions"
        with httpx.stream("POST", url, json=LONG | {"prompt": "a", "stream": True}) as stream:
            for _, _ in zip(range(3), stream.iter_lines(), strict=False):
                pass
        assert idle(served)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=LONG | {"prompt": "a"}, timeout=0.3)
        assert idle(served)
        assert served.decoder.counters.finished["cancelled"] == 2


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_left_before_the_answer_began_frees_its_slot(
    package: Path, stream: bool
) -> None:
    """The disconnection is there as soon as the body is."""
    body = json.dumps(LONG | {"prompt": "a", "stream": stream, "n": 2}).encode()
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": body}]

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await asyncio.sleep(0)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    with BatchDecoder.load(package, num_slots=2, num_threads=1) as decoder:
        app = create_app(decoder, ServerSettings(model="alphabet"))
        asyncio.run(app({**scope, "query_string": b"", "root_path": ""}, receive, send))
        deadline = time.monotonic() + 1  # to the end of their texts it is many times that
        while decoder.num_running:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert decoder.counters.finished == {"cancelled": 2}


def test_deadlines(package: Path) -> None:
    with serving(package, max_seconds=0.3) as served:
        url = f"{served.url}/v1/completions"
        answer = httpx.post(url, json=LONG | {"prompt": "a"}, timeout=20)
        assert answer.status_code == 504
        assert "given up after 0." in answer.json()["error"]["message"]
        lines = httpx.post(url, json=LONG | {"prompt": "a", "stream": True}, timeout=20).text
        assert '"code": "timeout"' in lines
        assert "[DONE]" not in lines


def test_half_closed_silent_and_slow_sockets(served: Served) -> None:
    sockets = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(200)]
    for number, each in enumerate(sockets):
        if number % 3 == 0:
            each.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
            each.shutdown(socket.SHUT_WR)
        elif number % 3 == 1:
            each.sendall(b"\x16\x03\x01\xff\xfe garbage\r\n\r\n")
    assert ask(served, max_tokens=2).json()["choices"][0]["message"]["content"] == "bc"
    for each in sockets:
        each.close()
    assert idle(served)


def test_metrics_add_up(package: Path) -> None:
    with serving(package) as served:
        for _ in range(3):
            ask(served, max_tokens=5)
        text = httpx.get(f"{served.url}/metrics").text
        assert 'specdec_requests_total{finish_reason="length"} 3.0' in text
        assert "specdec_new_tokens_total 15.0" in text
        assert "specdec_prompt_tokens_total 3.0" in text
        assert "specdec_request_seconds_count 3.0" in text
        assert "specdec_time_to_first_token_seconds_count 3.0" in text


def test_the_page_asks_nobody_else(served: Served) -> None:
    page = httpx.get(served.url)
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    parts = [page.text, *(httpx.get(f"{served.url}/page.{kind}").text for kind in ("js", "css"))]
    assert all(not re.search(r"https?://|//[a-z]+\.", part) for part in parts)
    assert not re.search(r"<script>|style=|onclick=|innerHTML", "".join(parts))


def test_no_page_of_another_origin_may_ask(served: Served, package: Path) -> None:
    headers = {"Origin": "http://example.org", "Access-Control-Request-Method": "POST"}
    answer = httpx.options(f"{served.url}/v1/completions", headers=headers)
    assert "access-control-allow-origin" not in answer.headers
    with serving(package, cors_origins=("http://example.org",)) as open_to_one:
        answer = httpx.options(f"{open_to_one.url}/v1/completions", headers=headers)
        assert answer.headers["access-control-allow-origin"] == "http://example.org"


def test_the_command(package: Path) -> None:
    """It prints its address first, answers, and ends what runs before it ends itself."""
    command = [sys.executable, "-c", "from specdec.cli.serve import main; main()"]
    process = subprocess.Popen(
        [*command, str(package), "--port", "0", "--slots", "2", "--num-threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().split()[0]
    body = {"model": "alphabet", "prompt": "a", "max_tokens": 60, "temperature": 0}
    answers: list[httpx.Response] = []

    def ask_slowly() -> None:
        answers.append(httpx.post(f"{address}/v1/completions", json=body | {"n": 16}, timeout=30))

    asking = threading.Thread(target=ask_slowly)
    asking.start()
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    asking.join(30)
    assert answers[0].status_code == 200
    assert len(answers[0].json()["choices"]) == 16
    assert process.wait(20) in (0, -signal.SIGTERM)
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stdout.close()
    process.stderr.close()


def test_an_address_in_use_is_one_line(package: Path, served: Served) -> None:
    command = [sys.executable, "-c", "from specdec.cli.serve import main; main()"]
    done = subprocess.run(
        [*command, str(package), "--port", str(served.port), "--num-threads", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"port {served.port}" in done.stderr


def test_no_text_of_requests_is_logged(package: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(package) as served:
        ask(served, messages=[{"role": "user", "content": "secret"}], max_tokens=2)
        ask(served, messages=[{"role": "user", "content": "secret"}], top_p=7)
    out, err = capfd.readouterr()
    assert "secret" not in out + err


def test_events_are_json_lines(served: Served) -> None:
    body = {"model": "alphabet", "prompt": "ä", "max_tokens": 3, "stream": True, "temperature": 0}
    text = httpx.post(f"{served.url}/v1/completions", json=body).content.decode()
    events = text.strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    documents = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert {document["object"] for document in documents} == {"text_completion"}
    assert "ö" in text


def test_a_deadline_over_a_chat_template_is_a_timeout() -> None:
    import asyncio

    from specdec.runtime.errors import NotBegunError, SpecdecError
    from specdec.runtime.serving.http.faults import handlers

    answer = handlers(1)[SpecdecError]
    response = asyncio.run(answer(None, NotBegunError("out of time")))  # type: ignore[arg-type]
    assert response.status_code == 504
    assert json.loads(response.body)["error"]["code"] == "specdec_36"
