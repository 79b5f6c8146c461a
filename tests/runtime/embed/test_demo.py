"""The C path on the real demo package: the command's text, cancellation, threads, logits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from specdec.engines import OrtOptions, load_package
from tests.runtime.embed.conftest import Run, call

PROMPTS = ("The three primary colours are", "def add(a, b):\n")


def test_greedy_text_is_that_of_the_command(examples: Path, demo_package: Path) -> None:
    arguments = ["--raw", "--json", "--max-new-tokens", "24"]
    for prompt in PROMPTS:
        arguments += ["--prompt", prompt]
    command = [sys.executable, "-c", "from specdec.cli.run import main; main()"]
    done = subprocess.run(
        [*command, str(demo_package), *arguments], capture_output=True, text=True, check=True
    )
    expected = [json.loads(line)["text"] for line in done.stdout.splitlines()]
    for prompt, text in zip(PROMPTS, expected, strict=True):
        ended = subprocess.run(
            [str(examples / "generate"), str(demo_package), prompt, "24"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert ended.stdout == text + "\n"


def test_threads_cancellation_and_closing(run: Run, demo_package: Path) -> None:
    assert run("threads", demo_package, timeout=600).splitlines() == [
        "cancelled: reason 4 late chunks 0",
        "closed: 0 reason 4 then 35",
        "requests 100 wrong 0",
    ]


def test_a_step_without_python_has_equal_logits(
    examples: Path, demo_package: Path, tmp_path: Path
) -> None:
    program = examples / "ort_native"
    if not program.exists():
        pytest.skip("ONNX Runtime's C++ headers or library are not installed")
    ids = [504, 3575, 282, 260, 6]
    plain = OrtOptions(engine="onnxruntime")  # the graph of standard operators, as the program's
    with load_package(demo_package, verify_checksums=False, load_draft=False, ort=plain) as package:
        entry = package.manifest.target
        expected = np.array(package.target.forward(np.array([ids]), 1)[0, 0])
        graph, max_length = demo_package / entry.graph, entry.max_length
    found = call(program, graph, max_length, tmp_path / "logits", *ids)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "logits", np.float32), expected)
    assert int(found) == int(expected.argmax())
