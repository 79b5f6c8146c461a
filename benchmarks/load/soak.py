"""Soak test of the server: many mixed requests at once, a third of them left at random moments.

Chats and completions, whole and streamed, greedy and sampled, several choices, log-probabilities,
bans, refusals. Each distinct request is asked alone first; every answer under load must be the
same, since its randomness is its own (`verify` is "coupled" where it samples). After each tenth the
server must be idle, with as many open files as before, and its memory is read.

    python benchmarks/serving.py --package PACKAGE --soak 10000 [--clients 16] [--slots 4]

Texts are compared to the letter: with a package whose rounding depends on the rows of a pass,
near-ties are counted as different.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from load.servers import Server

__all__ = ["TEXTS", "SoakResult", "report", "soak"]

KINDS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0, "ignore_eos": True},
    {"temperature": 0.8, "seed": 7, "verify": "coupled"},
    {"temperature": 1.2, "seed": 3, "verify": "coupled", "top_k": 20, "n": 2},
    {"temperature": 0, "logprobs": 2, "num_draft_tokens": 3},
    {"temperature": 0, "stop": ["e", "."], "repetition_penalty": 1.1},
    {"temperature": 0, "priority": 2, "num_draft_tokens": 0},
    {"temperature": 9, "top_p": 7},
)
"""Fields of a completion; the last is refused."""
TEXTS = ("a", "Once upon a time", "x = [1, 2, 3]\n", "你好", "The quick brown fox " * 12)
LENGTHS = (1, 9, 40, 150)
_IDLE_SECONDS = 30.0


@dataclass(frozen=True)
class SoakResult:
    """What came of the requests, and what the server's process held after each tenth."""

    outcomes: Counter[str]
    """"same", "different", "left", or "lost" when an answer broke off or was no answer."""
    memory: tuple[int, ...]
    """Resident bytes, the first after a warm-up."""
    files: tuple[int, ...]
    """Open descriptors."""
    seconds: float

    @property
    def slope(self) -> float:
        """Bytes a request, of a straight line through the readings."""
        each = self.outcomes.total() / (len(self.memory) - 1)
        return float(np.polyfit(np.arange(len(self.memory)) * each, self.memory, 1)[0])


def distinct(model: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """All requests there are."""
    return [
        {"model": model, "prompt": text, "max_tokens": length, **kind}
        for text in texts
        for length in LENGTHS
        for kind in KINDS
    ]


async def soak(
    server: Server, number: int, clients: int, texts: Sequence[str] = TEXTS, seed: int = 0
) -> SoakResult:
    """Ask everything once alone, warm up with a tenth of `number`, then ask `number` requests."""
    choose = random.Random(seed)
    bodies = distinct(server.model, texts)
    async with httpx.AsyncClient(timeout=120) as client:
        alone = [await whole(client, server, body) for body in bodies]
    await part(server, bodies, alone, number // 10, clients, choose)
    outcomes: Counter[str] = Counter()
    readings = [await reading(server)]
    began = time.perf_counter()
    for tenth in range(10):
        share = number * (tenth + 1) // 10 - number * tenth // 10
        outcomes += await part(server, bodies, alone, share, clients, choose)
        readings.append(await reading(server))
    seconds = time.perf_counter() - began
    memory, files = zip(*readings, strict=True)
    return SoakResult(outcomes, memory, files, seconds)


async def part(
    server: Server,
    bodies: Sequence[dict[str, Any]],
    alone: Sequence[object],
    number: int,
    clients: int,
    choose: random.Random,
) -> Counter[str]:
    """Let `clients` clients ask `number` requests over connections of their own."""
    outcomes: Counter[str] = Counter()
    left = iter(range(number))
    async with httpx.AsyncClient(timeout=120) as client:

        async def work() -> None:
            for _ in left:
                which = choose.randrange(len(bodies))
                ask = streamed if choose.random() < 0.5 else whole
                patience = choose.expovariate(50) if choose.random() < 1 / 3 else None
                try:
                    answer = await asyncio.wait_for(ask(client, server, bodies[which]), patience)
                except asyncio.TimeoutError:
                    outcomes["left"] += 1
                except (httpx.HTTPError, LookupError, ValueError) as error:
                    print(f"lost: {error!r}", file=sys.stderr)
                    outcomes["lost"] += 1
                else:
                    outcomes["same" if answer == alone[which] else "different"] += 1

        await asyncio.gather(*(work() for _ in range(clients)))
    return outcomes


async def whole(client: httpx.AsyncClient, server: Server, body: dict[str, Any]) -> object:
    """(text, reason) of each choice, or the status of a refusal."""
    answer = await client.post(f"{server.url}/completions", json=body)
    if answer.status_code != 200:
        return answer.status_code
    return [(choice["text"], choice["finish_reason"]) for choice in answer.json()["choices"]]


async def streamed(client: httpx.AsyncClient, server: Server, body: dict[str, Any]) -> object:
    """The same from a stream."""
    texts = [""] * body.get("n", 1)
    reasons: list[str | None] = [None] * len(texts)
    body = body | {"stream": True}
    async with client.stream("POST", f"{server.url}/completions", json=body) as answer:
        if answer.status_code != 200:
            return answer.status_code
        line = ""
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                texts[choice["index"]] += choice["text"]
                reasons[choice["index"]] = choice["finish_reason"]
            elif line == "data: [DONE]":
                return list(zip(texts, reasons, strict=True))
    raise ValueError("the stream broke off")


async def reading(server: Server) -> tuple[int, int]:
    """(resident bytes, open descriptors) once the server is idle.

    Raises:
        TimeoutError: a request still runs or waits although every client is gone.
    """
    deadline = time.monotonic() + _IDLE_SECONDS
    process = Path(f"/proc/{server.process}")
    async with httpx.AsyncClient() as client:
        while True:
            state = (await client.get(f"{server.url.removesuffix('/v1')}/ready")).json()
            if state["running"] == state["waiting"] == 0:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server is not idle: {state}")
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.2)  # the connections close
    resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resident, len(list((process / "fd").iterdir()))


def report(result: SoakResult) -> int:
    """Print; 1 when something was lost, mixed up or left open."""
    print(f"{result.outcomes.total()} requests in {result.seconds:.0f} s:")
    print("  " + ", ".join(f"{name} {n}" for name, n in sorted(result.outcomes.items())))
    print("resident MiB: " + " ".join(f"{m / 2**20:.1f}" for m in result.memory))
    print("open files: " + " ".join(map(str, result.files)))
    print(f"slope {result.slope / 1024:.3f} KiB per request")
    wrong = result.outcomes["lost"] + result.outcomes["different"]
    return int(wrong > 0 or result.files[-1] > result.files[0])
