"""The deployment on a real Ray cluster of this machine: two replicas, one of them killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest

from specdec.runtime.errors import InvalidParameterError

pytest.importorskip("ray.serve", reason="the extra ray is not installed")
httpx = pytest.importorskip("httpx", reason="the HTTP client of the tests is not installed")

import ray  # noqa: E402
from ray import serve  # noqa: E402

from specdec.runtime.serving.ray import app  # noqa: E402
from specdec.runtime.serving.ray_routing import prefix_key, ranked  # noqa: E402
from specdec.runtime.serving.ray_settings import RaySettings  # noqa: E402
from tests.cli.alphabet_package import write_alphabet_package  # noqa: E402
from tests.runtime.serving.http.conftest import serving  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
PATHS = [str(Path(__file__).parents[3]), *sys.path]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_alphabet_package(tmp_path_factory.mktemp("ray") / "alphabet")


@pytest.fixture(scope="module")
def address(package: Path) -> Iterator[str]:
    """A cluster with two replicas, behind one address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ray.init(
        num_cpus=2,
        object_store_memory=100_000_000,
        include_dashboard=False,
        configure_logging=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, PATHS))}},
    )
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        deploy(package)
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()


def deploy(package: Path) -> None:
    """Two replicas of one CPU each; returns when they are ready."""
    settings = {"package": str(package), "model": "alphabet", "num_slots": 3, "num_cpus": 1}
    settings |= {"max_queue": 30}
    serve.run(app(settings | {"min_replicas": 2, "max_replicas": 2}))


def body(prompt: str, **fields: Any) -> dict[str, Any]:
    return {"model": "alphabet", "temperature": 0, "prompt": prompt} | fields


def replicas() -> list[int]:
    """Process ids of the replicas that this process's cluster runs."""
    names: dict[int, bytes] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            names[int(folder.name)] = (folder / "cmdline").read_bytes()
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().split(") ")[-1].split()[1]
            )

    def ours(process: int) -> bool:
        while process in parents and process != os.getpid():
            process = parents[process]
        return process == os.getpid()

    return sorted(p for p, name in names.items() if b":default:replicas" in name and ours(p))


def test_answers_are_those_of_the_single_server(address: str, package: Path) -> None:
    asked = [
        body("a"),
        body("a", n=2, seed=3, temperature=2.0, max_tokens=9),
        body("x", logprobs=2),
        body("a", max_tokens=0),
        body("a", model="other"),
        {"model": "alphabet", "prompt": 3.5},
    ]
    with serving(package) as single:
        for request in asked:
            here = httpx.post(f"{single.url}/v1/completions", json=request)
            there = httpx.post(f"{address}/v1/completions", json=request)
            assert there.status_code == here.status_code
            same = [
                {k: v for k, v in a.json().items() if k not in ("id", "created")}
                for a in (here, there)
            ]
            assert same[0] == same[1]
    for path in ("/health", "/ready", "/v1/models", "/metrics", "/"):
        assert httpx.get(f"{address}{path}").status_code == 200
    large = httpx.post(f"{address}/v1/completions", content=b"x" * 2_000_001)
    assert large.status_code == 413


def test_streams_pass_through_as_they_arrive(address: str) -> None:
    request = body("a", max_tokens=20_000, ignore_eos=True, stream=True)
    began = time.monotonic()
    with httpx.stream("POST", f"{address}/v1/completions", json=request, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = (line for line in answer.iter_lines() if line)
        first = json.loads(next(lines).removeprefix("data: "))["choices"][0]["text"]
        waited = time.monotonic() - began
    assert "bcdefghijkl".startswith(first[:11])
    assert len(first) < 100
    assert waited < 20
    deadline = time.monotonic() + 20  # its slot is free again, so nothing runs on either replica
    while any(httpx.get(f"{address}/ready").json()["running"] for _ in range(4)):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_more_than_the_queue_holds_is_refused(address: str) -> None:
    request = body("a", max_tokens=1500, ignore_eos=True)

    def ask(_: int) -> httpx.Response:
        return httpx.post(f"{address}/v1/completions", json=request, timeout=120)

    with ThreadPoolExecutor(70) as pool:
        answers = list(pool.map(ask, range(70)))
    refused = [answer for answer in answers if answer.status_code != 200]
    assert 38 <= len(answers) - len(refused) < 70  # eight at the replicas, 30 in the queue
    for answer in refused:
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["error"]["code"] == "busy"
        assert "\n" not in answer.json()["error"]["message"]


def test_a_replica_killed_under_load_loses_no_answer(address: str) -> None:
    request = {"max_tokens": 600, "ignore_eos": True, "timeout": 100}
    letters = ascii_lowercase[:12]

    def ask(letter: str) -> tuple[int, str]:
        answer = httpx.post(f"{address}/v1/completions", json=body(letter, **request), timeout=120)
        return answer.status_code, answer.json()["choices"][0]["text"]

    before = replicas()
    assert len(before) == 2
    killed = threading.Timer(0.6, lambda: os.kill(before[0], signal.SIGKILL))
    with ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(ask, letter) for letter in letters]
        killed.start()
        done = [answer.result() for answer in answers]
    killed.join()
    cycle = ascii_lowercase
    for letter, (status, text) in zip(letters, done, strict=True):
        assert status == 200
        kept = text.replace("<end>", "")
        place = cycle.index(letter) + 1
        assert kept == (cycle * 40)[place : place + len(kept)]
        assert len(kept) > 500
    deadline = time.monotonic() + 60  # and another one takes its place
    while len(set(replicas()) - {before[0]}) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_stream_whose_replica_dies_says_so(address: str) -> None:
    request = body("a", max_tokens=100_000, ignore_eos=True, stream=True)
    with httpx.stream("POST", f"{address}/v1/completions", json=request, timeout=60) as answer:
        lines = (line for line in answer.iter_lines() if line)
        assert "choices" in next(lines)
        for process in replicas():
            os.kill(process, signal.SIGKILL)
        rest = list(lines)
    assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "lost"
    after = httpx.post(f"{address}/v1/completions", json=body("x"), timeout=120)
    assert after.json()["choices"][0]["text"] == "yz"


def test_a_new_package_replaces_the_old_one_under_load(address: str, tmp_path: Path) -> None:
    """Nobody who asks meanwhile is refused; afterwards the new one, without a template, answers."""
    messages = [{"role": "user", "content": "x"}]
    chat = {"model": "alphabet", "messages": messages, "temperature": 0}
    assert httpx.post(f"{address}/v1/chat/completions", json=chat, timeout=60).status_code == 200
    ended = threading.Event()

    def ask(letter: str) -> list[tuple[int, str]]:
        seen = []
        while not ended.is_set():
            answer = httpx.post(f"{address}/v1/completions", json=body(letter), timeout=120)
            text = answer.json()["choices"][0]["text"] if answer.status_code == 200 else answer.text
            seen.append((answer.status_code, text))
        return seen

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, letter) for letter in "afkp"]
        try:
            deploy(write_alphabet_package(tmp_path / "new", chat_template=False))
        finally:
            ended.set()
        for letter, each in zip("afkp", asking, strict=True):
            text = ascii_lowercase[ascii_lowercase.index(letter) + 1 :]
            assert set(each.result()) == {(200, text)}
    refused = httpx.post(f"{address}/v1/chat/completions", json=chat, timeout=60)
    assert refused.status_code == 400
    assert "template" in refused.json()["error"]["message"]


def test_a_conversation_keeps_its_replica() -> None:
    first = {"role": "system", "content": "You are brief."}
    turns = [[first], [first, {"role": "user", "content": "Hi"}]]
    keys = {prefix_key(json.dumps({"messages": messages}).encode()) for messages in turns}
    assert len(keys) == 1
    names = ["one", "two", "three"]
    key = keys.pop()
    order = ranked(names, key)
    assert sorted(order) == sorted(names)
    assert ranked(order[1:], key) == order[1:]
    firsts = [ranked(names, str(number))[0] for number in range(300)]
    assert all(70 < firsts.count(name) < 130 for name in names)
    assert prefix_key(b"[1]") == prefix_key(b"{") == prefix_key(b"\xff") == ""


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_PACKAGE", "/models/pair")
    monkeypatch.setenv("SPECDEC_NUM_SLOTS", "7")
    settings = RaySettings.read({"max_replicas": 3, "max_queue": "9"})
    assert (settings.package, settings.num_slots) == (Path("/models/pair"), 7)
    assert (settings.max_replicas, settings.max_queue) == (3, 9)
    assert settings.server().model == "pair"
    for arguments, message in (
        ({"slots": 3}, "slots: Extra inputs.*allowed are package, model"),
        ({"num_slots": 0}, "num_slots: .*greater than or equal to 1"),
        ({"min_replicas": 3}, "max_replicas is 1; allowed is min_replicas, 3, or more"),
    ):
        with pytest.raises(InvalidParameterError, match=message):
            RaySettings.read(arguments)


@pytest.mark.parametrize("name", ["ray.yaml", "kuberay.yaml"])
def test_the_examples_are_deployments(name: str) -> None:
    import yaml
    from ray.serve.schema import ServeDeploySchema

    text = (Path(__file__).parents[3] / "examples" / name).read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    if name == "kuberay.yaml":
        document = yaml.safe_load(document["spec"]["serveConfigV2"])
    (deployed,) = ServeDeploySchema.model_validate(document).applications
    assert deployed.import_path == f"{app.__module__}:{app.__name__}"
    assert RaySettings.read(deployed.args).package == Path("/models/demo")


def test_the_documentation_names_every_argument() -> None:
    text = (Path(__file__).parents[3] / "docs" / "serving.md").read_text(encoding="utf-8")
    part = text.split("## More machines than one")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (.*?) \|", part, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert named == set(RaySettings.model_fields)
