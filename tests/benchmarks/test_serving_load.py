"""The load on a server: every request is asked once, and the table adds up."""

from __future__ import annotations

import asyncio
import random
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("openai", reason="the client is not installed")

from load.servers import our_server
from serving import Answer, Run, requests, run_level, table

from tests.cli.alphabet_package import write_alphabet_package


def test_a_load_on_the_command(tmp_path: Path) -> None:
    package = write_alphabet_package(tmp_path / "alphabet")
    asked = requests(7, seed=1)
    assert asked == requests(7, seed=1)
    assert len({each.text for each in asked}) == 7
    with our_server(package, ["--slots", "2", "--num-threads", "1"]) as server:
        runs = [
            asyncio.run(run_level(server, asked, clients, 0, random.Random(0)))
            for clients in (1, 3)
        ]
    for run in runs:
        lengths = sorted(each.max_tokens for each in asked)
        assert sorted(answer.tokens for answer in run.answers) == lengths
        assert all(0 < answer.first <= answer.last <= run.seconds for answer in run.answers)
        assert run.tokens_per_second == sum(lengths) / run.seconds
    lines = list(table(runs))
    assert [line.split()[:2] for line in lines[1:]] == [["specdec", "1"], ["specdec", "3"]]
    assert lines[1].split()[3] == "1.00"


def test_a_package_that_is_none_is_an_error(tmp_path: Path) -> None:
    error = pytest.raises(subprocess.SubprocessError, match="ended with")
    with error, our_server(tmp_path, []):
        pass


def test_fairness() -> None:
    def run(*seconds: float) -> Run:
        answers = tuple(Answer(11, 1.0, 1.0 + 10 * s, ()) for s in seconds)
        return Run("x", 2, 0, 4.0, answers)

    assert run(0.1, 0.1, 0.1).fairness == pytest.approx(1.0)
    assert run(0.1, 0.3).fairness == pytest.approx(0.8)
    assert run(0.1, 0.3).tokens_per_second == 22 / 4.0
