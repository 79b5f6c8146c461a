"""A short soak of the server: nothing lost, nothing mixed up, nothing left open."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("httpx", reason="the HTTP client of the tests is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from load.servers import our_server
from load.soak import TEXTS, soak

from tests.cli.alphabet_package import write_alphabet_package


def test_a_short_soak(tmp_path: Path) -> None:
    package = write_alphabet_package(tmp_path / "alphabet")
    with our_server(package, ["--slots", "3", "--num-threads", "1"]) as server:
        result = asyncio.run(soak(server, 150, 12, TEXTS[:2]))
    assert result.outcomes.total() == 150
    assert set(result.outcomes) == {"same", "left"}
    assert result.outcomes["left"] > 15
    assert len(set(result.files)) == 1
    assert result.memory[-1] < result.memory[0] + 30 * 2**20
