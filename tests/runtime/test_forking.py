"""A fork after a load: the child gets one clear error and ends cleanly; the parent goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="builds its graphs with the onnx package")
from tests.cli.alphabet_package import write_alphabet_package

if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)

START = """
import os, sys
from specdec.runtime import ForkedError, SamplingParams, SpeculativeDecoder

decoder = SpeculativeDecoder.load(sys.argv[1])
params = SamplingParams(max_new_tokens=4)
assert decoder.generate("a", params).text == "bcde"
"""
CALLS = {
    "generate": "decoder.generate('a')",
    "session": "decoder.session().generate('a')",
    "stream begun before": "next(stream)",
}


def run(program: str, package: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own; one that hangs fails the test."""
    return subprocess.run(
        [sys.executable, "-c", START + program, str(package)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_alphabet_package(tmp_path_factory.mktemp("fork") / "package")


@pytest.mark.parametrize("call", CALLS)
def test_a_child_is_told_at_its_first_call(package: Path, call: str) -> None:
    program = f"""
stream = decoder.stream("a", params) if {call!r}.startswith("stream") else None
child = os.fork()
if child == 0:
    try:
        {CALLS[call]}
    except ForkedError as error:
        print(error.code, error)
    decoder.close()
    decoder.close()
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if stream is not None:
    assert stream.drain().text == "bcde"
assert decoder.generate("a", params).text == "bcde"
"""
    ran = run(program, package)
    assert (ran.returncode, ran.stderr) == (0, "")
    told, code = ran.stdout.splitlines()
    assert told.startswith("54 this process was forked after the package had been loaded")
    assert code == "7"


@pytest.mark.parametrize("before", ["", "decoder.close()", "del decoder"])
def test_a_child_that_calls_nothing_ends(package: Path, before: str) -> None:
    program = f"""
{before}
child = os.fork()
if child == 0:
    print("said before the end")
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ran = run(program, package)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["said before the end", "3"]


def test_multiprocessing_by_fork(package: Path) -> None:
    program = """
import multiprocessing
context = multiprocessing.get_context("fork")
queue = context.Queue()

def work():
    try:
        decoder.generate("a")
    except ForkedError as error:
        queue.put(str(error))

worker = context.Process(target=work)
worker.start()
print(queue.get(timeout=30))
worker.join(30)
print(worker.exitcode)
"""
    ran = run(program, package)
    assert ran.returncode == 0, ran.stderr
    told, code = ran.stdout.splitlines()
    assert "fork before loading" in told
    assert code == "0"


def test_a_child_may_load_a_package_of_its_own(package: Path) -> None:
    program = """
child = os.fork()
if child == 0:
    with SpeculativeDecoder.load(sys.argv[1]) as own:
        print(own.generate("a", params).text)
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ran = run(program, package)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["bcde", "0"]
