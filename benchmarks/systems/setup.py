"""Prepare a peer: install it into an environment of its own, and write models in its format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORKERS = ROOT / "benchmarks" / "systems" / "workers"

__all__ = ["PEERS", "Peer", "install", "prepare", "settings"]


@dataclass(frozen=True)
class Peer:
    """A system to measure."""

    name: str
    script: str
    """Worker in `workers/`."""
    requirements: tuple[str, ...] = ()
    """Installed in the peer's own environment; none: runs in specdec's."""
    needs_torch: bool = False

    def python(self, cache: Path) -> Path:
        """The interpreter that runs the worker."""
        if not self.requirements:
            return Path(sys.executable)
        return cache / "environments" / self.name / "bin" / "python"

    def models(self, cache: Path) -> Path:
        """Folder of the peer's models."""
        return cache / "models" / self.name


PEERS = {
    peer.name: peer
    for peer in (
        Peer("specdec", "ours.py"),
        Peer(
            "genai",
            "genai.py",
            ("onnxruntime-genai", "onnx-ir", "transformers", "accelerate", "sentencepiece"),
            needs_torch=True,
        ),
        Peer("openvino", "ov.py", ("openvino-genai", "nncf")),
        Peer("llama.cpp", "llamacpp.py", ("llama-cpp-python",)),
        Peer("transformers", "hf.py", ("transformers", "accelerate"), needs_torch=True),
    )
}


def install(peer: Peer, cache: Path) -> None:
    """Make the peer's environment; torch comes as `scripts/install.py` takes it, for the CPU.

    Raises:
        subprocess.CalledProcessError: pip failed; `stderr` is the end of its output.
    """
    python = peer.python(cache)
    if not peer.requirements:
        return
    if not python.exists():
        venv.create(python.parents[1], with_pip=True)
    if peer.needs_torch:
        code = "import install; install.install_torch()"
        scripts = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
        _run([python, "-c", code], env=scripts)
    _run([python, "-m", "pip", "install", *peer.requirements])


def settings(peer: Peer, cache: Path, threads: int) -> str:
    """The argument of a worker, as JSON."""
    return json.dumps(
        {
            "weights": str(cache / "weights"),
            "models": str(peer.models(cache)),
            "threads": threads,
        }
    )


def prepare(peer: Peer, cache: Path, threads: int) -> None:
    """Let the peer write its models, in its own environment.

    Raises:
        subprocess.CalledProcessError: it failed; `stderr` is the end of its output.
    """
    script = WORKERS / peer.script
    _run([peer.python(cache), script, "prepare", settings(peer, cache, threads)])


def _run(command: list[str | Path], env: dict[str, str] | None = None) -> None:
    """Run quietly; a failure carries the last lines."""
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise subprocess.CalledProcessError(done.returncode, command, stderr=tail)
