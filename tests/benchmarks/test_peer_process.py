"""Workers and their pipe, with a real child process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from systems.process import PeerError, Worker
from systems.setup import WORKERS, Peer, prepare

from specdec.runtime import SamplingParams, SpeculativeDecoder

pytestmark = pytest.mark.slow

ECHO = """
import sys, time
sys.path.insert(0, {workers!r})
import protocol

def prepare(settings):
    protocol.written_once(settings.models / "model", lambda path: path.write_text("ready"))
    print("noise")

def load(settings, model):
    if model == "missing":
        raise ValueError("no such\\nmodel")
    def generate(request):
        print("noise between the answers")
        if request.num_draft_tokens == 99:
            time.sleep(60)
        if request.num_draft_tokens == 98:
            sys.exit(3)
        return [*request.prompt[::-1], settings.threads][: request.max_new_tokens]
    return generate

protocol.run(prepare, load, ["numpy", "no-such-package"])
"""


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    script = tmp_path / "echo.py"
    script.write_text(ECHO.format(workers=str(WORKERS)), encoding="utf-8")
    return Peer("echo", str(script))


def request(draft_tokens: int = 0, prompt: list[int] | None = None) -> dict[str, object]:
    return {
        "op": "generate",
        "model": "m",
        "prompt": prompt or [1, 2, 3],
        "max_new_tokens": 4,
        "temperature": 0.0,
        "seed": 1,
        "num_draft_tokens": draft_tokens,
    }


def test_worker_answers_although_the_library_prints(peer: Peer, tmp_path: Path) -> None:
    worker = Worker(peer, tmp_path, threads=7)
    try:
        worker.load("m")
        assert set(worker.versions) == {"numpy"}
        answers = [worker.ask(request(), 60.0) for _ in range(2)]
    finally:
        worker.close()
    assert [answer["token_ids"] for answer in answers] == [[3, 2, 1, 7]] * 2
    assert all(0.0 < answer["seconds"] < 60.0 for answer in answers)
    assert "noise between" in (tmp_path / "logs" / "echo.log").read_text(encoding="utf-8")


def test_an_error_is_one_line_and_the_worker_goes_on(peer: Peer, tmp_path: Path) -> None:
    worker = Worker(peer, tmp_path, threads=1)
    try:
        with pytest.raises(PeerError, match=r"^echo: ValueError: no such model$"):
            worker.load("missing")
        worker.load("m")
        assert worker.ask(request(), 60.0)["token_ids"] == [3, 2, 1, 1]
    finally:
        worker.close()


def test_a_slow_worker_and_one_that_ends_are_errors(peer: Peer, tmp_path: Path) -> None:
    for draft_tokens, message, timeout in ((99, "no answer within", 0.2), (98, "echo ended", 60.0)):
        worker = Worker(peer, tmp_path, threads=1)
        try:
            worker.load("m")
            with pytest.raises(PeerError, match=message):
                worker.ask(request(draft_tokens), timeout)
            with pytest.raises(PeerError, match="echo ended"):
                worker.ask(request(), 60.0)
        finally:
            worker.close()


def test_prepare_writes_once_and_a_failure_shows_its_last_lines(peer: Peer, tmp_path: Path) -> None:
    prepare(peer, tmp_path, 1)
    model = tmp_path / "models" / "echo" / "model"
    assert model.read_text(encoding="utf-8") == "ready"
    model.write_text("kept", encoding="utf-8")
    prepare(peer, tmp_path, 1)
    assert model.read_text(encoding="utf-8") == "kept"
    Path(peer.script).write_text("print('on the way')\nraise SystemExit('broken')", "utf-8")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        prepare(peer, tmp_path, 1)
    assert caught.value.stderr == "on the way\nbroken"


def test_a_write_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(WORKERS)!r})\n"
        "import protocol\n"
        f"path = protocol.Path({str(tmp_path / 'model.bin')!r})\n"
        "def write(partial):\n    partial.write_text('half')\n    raise KeyboardInterrupt\n"
        "protocol.written_once(path, write)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode != 0
    assert not (tmp_path / "model.bin").exists()


@pytest.mark.demo
def test_our_worker_gives_the_decoder_s_own_text(demo_package: Path, tmp_path: Path) -> None:
    models = tmp_path / "models" / "specdec"
    models.mkdir(parents=True)
    (models / "package").symlink_to(demo_package)
    with SpeculativeDecoder.load(demo_package) as decoder:
        ids = decoder.encode("The three primary colours are")
        params = SamplingParams(max_new_tokens=4, num_draft_tokens=0)
        wanted = decoder.generate(ids, params).token_ids
    worker = Worker(Peer("specdec", "ours.py"), tmp_path, threads=2)
    try:
        for model in ("model", "hybrid"):
            worker.load(model)
            answer = worker.ask({**request(3, ids), "model": model}, 120.0)
            assert tuple(answer["token_ids"]) == wanted
    finally:
        worker.close()
    assert "onnxruntime" in json.dumps(worker.versions)
