"""Run a peer's worker: a child process that answers one request at a time."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any

from systems.setup import WORKERS, Peer, settings

__all__ = ["PeerError", "Worker"]


class PeerError(RuntimeError):
    """A peer could not do what was asked; the others go on."""


class Worker:
    """One running worker; what it writes to stderr goes to a log file."""

    def __init__(self, peer: Peer, cache: Path, threads: int) -> None:
        self.versions: dict[str, str] = {}
        self._name = peer.name
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        logs = cache / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / f"{peer.name}.log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    peer.python(cache),
                    WORKERS / peer.script,
                    "serve",
                    settings(peer, cache, threads),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send a request and wait for its answer, at most `timeout` seconds.

        Raises:
            PeerError: the worker reports an error, ended, or is too slow.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            self.close()
            raise PeerError(f"{self._name} gave no answer within {timeout:.0f} s") from None
        except (OSError, ValueError):  # the pipe is broken, or closed
            line = ""
        if not line:
            self._answers.put("")  # it stays ended
            raise PeerError(f"{self._name} ended; see logs/{self._name}.log in the cache folder")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self._name}: {answer['error']}")
        return answer

    def load(self, model: str, timeout: float = 600.0) -> None:
        """Load a model of the peer; raises as `ask`."""
        self.versions = self.ask({"op": "load", "model": model}, timeout)["versions"]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # what was never sent
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")
