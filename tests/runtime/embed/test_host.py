"""Handles, the slot of a decoder, option documents and the builder's refusals."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import pytest

from specdec.runtime import (
    BusyError,
    ClosedError,
    InvalidParameterError,
    SamplingParams,
    UnsupportedOptionError,
)
from specdec.runtime.embed.builder import build_library
from specdec.runtime.embed.documents import read_messages, read_options, read_request
from specdec.runtime.embed.errors import BadArgumentError, BadHandleError, BuildError
from specdec.runtime.embed.host import DECODER, SESSION, Host, Request
from specdec.runtime.embed.slot import Slot
from tests.runtime.embed.conftest import call
from tests.support.decoders import pair


def request(tokens: int = 20) -> Request:
    return Request([1, 2], SamplingParams(max_new_tokens=tokens))


def test_handles_never_come_back() -> None:
    host = Host()
    seen = set()
    for _ in range(3):
        handle = host.add(pair()[0])
        session = host.open_session(handle)
        assert not seen & {handle, session}
        seen |= {handle, session}
        host.close(handle, DECODER)
    for handle in seen:
        with pytest.raises(ClosedError):
            host.cancel(handle, handle % 2)
        with pytest.raises(BadHandleError):
            host.cancel(handle, 1 - handle % 2)
    for handle in (0, 1, 14, 15, 2**63):
        with pytest.raises(BadHandleError):
            host.cancel(handle, handle % 2)


def test_closing_a_decoder_closes_its_sessions_and_engines() -> None:
    host = Host()
    decoder, target, draft = pair()
    handle, other = host.add(decoder), host.add(pair()[0])
    session, kept = host.open_session(handle), host.open_session(other)
    host.close(handle, DECODER)
    assert (target.closed, draft.closed) == (True, True)
    with pytest.raises(ClosedError):
        host.generate(session, SESSION, request(), None)
    assert host.generate(kept, SESSION, request(), None).finish_reason == "length"


def test_a_session_cancels_only_its_own_generation() -> None:
    host = Host()
    handle = host.add(pair()[0])
    one, two = host.open_session(handle), host.open_session(handle)

    def cancel(which: int, kind: int) -> str:
        result = host.generate(one, SESSION, request(), lambda _: host.cancel(which, kind))
        return result.finish_reason

    assert cancel(two, SESSION) == "length"
    assert cancel(one, SESSION) == "cancelled"
    assert cancel(handle, DECODER) == "cancelled"


def test_a_generation_cancelled_before_its_stream_exists_ends_at_once() -> None:
    slot = Slot()
    decoder, target, _ = pair()
    with slot.entered(7):
        slot.cancel()
        stream = decoder.stream([1], SamplingParams(max_new_tokens=9))
        slot.attach(stream)
        assert stream.drain().finish_reason == "cancelled"
    assert target.calls == []
    with slot.entered(7):  # the next one is a new one
        stream = decoder.stream([1], SamplingParams(max_new_tokens=9))
        slot.attach(stream)
        assert stream.drain().finish_reason == "length"


def test_closing_waits_for_the_generation_of_another_thread() -> None:
    host = Host()
    decoder, target, _ = pair()
    handle = host.add(decoder)
    session = host.open_session(handle)
    inside, go_on = threading.Event(), threading.Event()
    reasons: list[str] = []

    def hold(_: object) -> bool:
        inside.set()
        return not go_on.wait(30)

    def generate() -> None:
        reasons.append(host.generate(handle, DECODER, request(), hold).finish_reason)

    worker = threading.Thread(target=generate)
    worker.start()
    assert inside.wait(30)
    with pytest.raises(BusyError):
        host.generate(session, SESSION, request(), None)
    closer = threading.Thread(target=host.close, args=(handle, DECODER))
    closer.start()
    while handle in host._entries:
        time.sleep(0.001)
    with pytest.raises(ClosedError):
        host.close(handle, DECODER)
    assert not target.closed
    go_on.set()
    worker.join(30)
    closer.join(30)
    assert reasons == ["cancelled"]
    assert target.closed


def test_a_closed_slot_lets_nothing_in() -> None:
    slot = Slot()
    slot.close()
    with pytest.raises(ClosedError), slot.entered(1):
        pass


def test_a_reset_of_a_running_session_is_busy() -> None:
    host = Host()
    session = host.open_session(host.add(pair()[0]))

    def reset(_: object) -> bool:
        with pytest.raises(BusyError):
            host.reset(session)
        return True

    host.generate(session, SESSION, request(), reset)
    host.reset(session)


def test_reuse_prefix_is_for_decoders() -> None:
    host = Host()
    handle = host.add(pair()[0])
    asked = Request([1, 2], SamplingParams(max_new_tokens=3), reuse_prefix=True)
    assert host.generate(handle, DECODER, asked, None).finish_reason == "length"
    with pytest.raises(UnsupportedOptionError, match="reuse_prefix"):
        host.generate(host.open_session(handle), SESSION, asked, None)


@pytest.mark.parametrize(
    "document", [b"[1]", b'"a"', b"3", b"{", b"\xff", b'{"a":1,"a":1}', b"[" * 99_999]
)
def test_documents_that_cannot_be_read(document: bytes) -> None:
    with pytest.raises(BadArgumentError):
        read_options(document)


def test_no_document_is_no_option() -> None:
    assert read_options(None) == read_options(b"") == read_options(b"{}") == {}


@pytest.mark.parametrize("document", [b"{}", b"[]", b"[1]", b'["user"]'])
def test_messages_are_objects_in_an_array(document: bytes) -> None:
    with pytest.raises(BadArgumentError):
        read_messages(document)


def test_a_wrong_bias_and_a_wrong_flag_are_named() -> None:
    with pytest.raises(InvalidParameterError, match="logit_bias"):
        read_request("", b'{"logit_bias": {"x": 1}}')
    with pytest.raises(InvalidParameterError, match="reuse_prefix"):
        read_request("", b'{"reuse_prefix": 1}')


@pytest.mark.parametrize(
    ("variables", "word"),
    [({"CXX": "no-such-compiler"}, "no-such-compiler"), ({"CXXFLAGS": "-include nowhere.h"}, "fa")],
)
def test_a_failing_compiler_is_one_line(
    installed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    word: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BuildError) as caught:
        build_library(tmp_path / "out")
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("*.so"))


def test_a_python_without_a_shared_library_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = sysconfig.get_config_var

    def without(name: str) -> object:
        return 0 if name == "Py_ENABLE_SHARED" else known(name)

    monkeypatch.setattr(sysconfig, "get_config_var", without)
    with pytest.raises(BuildError, match="--enable-shared"):
        build_library(tmp_path / "out")


@pytest.mark.parametrize(
    ("python", "code"), [("/nowhere/bin/python", "55"), (sys.executable, "done")]
)
def test_the_environment_can_be_named(
    examples: Path, alphabet: Path, python: str, code: str
) -> None:
    done = subprocess.run(
        [str(examples / "generate"), str(alphabet), "a", "3"],
        env={**os.environ, "SPECDEC_PYTHON": python, "PYTHONPATH": "/nowhere", "PYTHONHOME": "/no"},
        capture_output=True,
        text=True,
        check=False,
    )
    if code == "done":
        assert (done.returncode, done.stdout) == (0, "bcd\n")
    else:
        assert done.stderr.startswith("error 55: the Python environment at /nowhere/bin/python")


def test_an_environment_without_specdec_is_answered(
    examples: Path, alphabet: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    done = subprocess.run(
        [str(examples / "generate"), str(alphabet), "a", "3"],
        env={**os.environ, "SPECDEC_PYTHON": str(tmp_path / "bin" / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith("error 55: Python has started but cannot import _cffi_backend")
    assert "install specdec-edge, cffi and onnxruntime" in done.stderr


def test_the_cpp_engine_example(examples: Path) -> None:
    first, second = call(examples / "own_engine").splitlines()
    assert first.startswith("she |")
    assert len(first) == len("she ||") + 60
    assert float(second.removeprefix("acceptance ")) > 0.5
