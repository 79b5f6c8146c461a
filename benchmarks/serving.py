"""Load on servers: tokens a second, times to and between tokens, and fairness, by clients at once.

    python benchmarks/serving.py --package packages/demo --slots 4 --json serving.json
    python benchmarks/serving.py --package packages/demo --llama model.gguf   # llama-cpp-python
    python benchmarks/serving.py --url http://127.0.0.1:8000/v1 --model demo

OpenAI's asynchronous client asks: prompts of six kinds and two languages, answers of several
lengths, each level of clients with the same requests in the same order. One client is the requests
one after the other. Levels and servers take turns in each repeat, so that a machine that drifts
slows all alike; ratios are medians over repeats. Each request begins with a number of its own, so
that no prompt is in a cache already. Figures are only worth something on a machine that does
nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from load.servers import Server, llama_server, our_server
from load.soak import report, soak
from openai import AsyncOpenAI

from specdec.engines.storage.writing import write_file
from specdec.runtime.report.measuring.machine import describe_machine
from specdec.runtime.report.measuring.prompt_set import load_prompts

LENGTHS = (16, 32, 64, 128)


@dataclass(frozen=True)
class Asked:
    """A request of the load."""

    text: str
    max_tokens: int


@dataclass(frozen=True)
class Answer:
    """What a client saw of one request; times in seconds since it was sent."""

    tokens: int
    first: float
    """Of the first text."""
    last: float
    gaps: tuple[float, ...]
    """Between arrivals of text; one may bring the several tokens of a round."""

    @property
    def per_token(self) -> float:
        """Mean seconds of a token after the first; too low by what came with the first text."""
        return (self.last - self.first) / max(self.tokens - 1, 1)


@dataclass(frozen=True)
class Run:
    """All requests at one level of clients."""

    server: str
    clients: int
    repeat: int
    seconds: float
    answers: tuple[Answer, ...]

    @property
    def tokens_per_second(self) -> float:
        """Of all clients together."""
        return sum(answer.tokens for answer in self.answers) / self.seconds

    @property
    def fairness(self) -> float:
        """Jain's index of the requests' times per token: 1 is the same for all, 1/n the worst."""
        times = np.array([answer.per_token for answer in self.answers])
        return float(times.sum() ** 2 / (len(times) * (times**2).sum()))


def requests(number: int, seed: int) -> list[Asked]:
    """The load: every repeat and level asks for the same."""
    choose = random.Random(seed)
    prompts = list(load_prompts())
    choose.shuffle(prompts)
    return [Asked(prompts[i % len(prompts)].text, choose.choice(LENGTHS)) for i in range(number)]


async def run_level(
    server: Server, asked: Sequence[Asked], clients: int, repeat: int, salt: random.Random
) -> Run:
    """Let `clients` clients take the requests one by one until none is left."""
    waiting = deque(asked)
    answers: list[Answer] = []
    limits: Any = {"max_retries": 0, "timeout": 600.0}
    async with AsyncOpenAI(base_url=server.url, api_key=server.key, **limits) as client:

        async def work() -> None:
            while waiting:
                each = waiting.popleft()
                text = f"({salt.randrange(10**6)}) {each.text}"
                answers.append(await ask(client, server, Asked(text, each.max_tokens)))

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(clients)))
        seconds = time.perf_counter() - began
    return Run(server.name, clients, repeat, seconds, tuple(answers))


async def ask(client: AsyncOpenAI, server: Server, asked: Asked) -> Answer:
    """One request, streamed; greedy."""
    began = time.perf_counter()
    stream = await client.chat.completions.create(
        model=server.model,
        messages=[{"role": "user", "content": asked.text}],
        max_tokens=asked.max_tokens,
        temperature=0.0,
        stream=True,
        extra_body=server.extra,
    )
    arrivals: list[float] = []
    tokens = 0
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            arrivals.append(time.perf_counter() - began)
        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
    ended = time.perf_counter() - began
    arrivals = arrivals or [ended]
    gaps = tuple(b - a for a, b in pairwise(arrivals))
    return Answer(tokens or len(arrivals), arrivals[0], arrivals[-1], gaps)


def table(runs: Sequence[Run]) -> Iterator[str]:
    """One line for each server and level."""
    yield (
        f"{'server':<10} clients  tokens/s  x one    first p50   p95   p99 "
        "  gap p50   p95   p99  token p50   p95   p99  fairness"
    )
    for server in dict.fromkeys(run.server for run in runs):
        own = [run for run in runs if run.server == server]
        alone = {run.repeat: run.tokens_per_second for run in own if run.clients == 1}
        for clients in sorted({run.clients for run in own}):
            level = [run for run in own if run.clients == clients]
            answers = [answer for run in level for answer in run.answers]
            ratios = [r.tokens_per_second / alone[r.repeat] for r in level if r.repeat in alone]
            ratio = f"{median(ratios):6.2f}" if ratios else "      "
            yield (
                f"{server:<10} {clients:7d} {median(r.tokens_per_second for r in level):9.1f}"
                f" {ratio}    {_three([a.first for a in answers])}"
                f" {_three([gap for a in answers for gap in a.gaps])}"
                f"   {_three([a.per_token for a in answers])}"
                f" {median(run.fairness for run in level):9.3f}"
            )


def _three(seconds: Sequence[float]) -> str:
    """Quantiles in milliseconds."""
    if not seconds:
        return "     -     -     -"
    return "".join(f"{1e3 * q:9.0f}"[3:] for q in np.quantile(seconds, (0.5, 0.95, 0.99)))


@contextmanager
def started(options: argparse.Namespace) -> Iterator[list[Server]]:
    """The servers to load; those that are started here end with the block."""
    with ExitStack() as stack:
        servers = []
        if options.url:
            extra = {"stream_options": {"include_usage": True}}
            servers.append(Server("given", options.url, options.model, options.key, extra))
        if options.package:
            servers.append(stack.enter_context(our_server(options.package, options.server_args)))
            if options.plain:
                plain = [*options.server_args, "--drafter", "none"]
                servers.append(stack.enter_context(our_server(options.package, plain, "plain")))
        if options.llama:
            servers.append(stack.enter_context(llama_server(options.llama, options.threads)))
        yield servers


def main() -> int:
    """Load, print, write."""
    options = _options()
    asked = requests(options.requests, options.seed)
    machine = describe_machine("cpu", None, options.threads)
    print(f"{machine.cpu}, {machine.cores} cores, {machine.system}, Python {machine.python}")
    print(
        f"{len(asked)} requests of {sum(a.max_tokens for a in asked)} tokens at most, "
        f"{options.repeats} repeats, slots {options.slots}, threads {options.threads}"
    )
    if options.soak:
        with our_server(options.package, options.server_args) as server:
            return report(asyncio.run(soak(server, options.soak, options.clients[-1])))
    runs: list[Run] = []
    try:
        with started(options) as servers:
            salt = random.Random(options.seed)
            for repeat in range(-1, options.repeats):  # the first warms up
                levels = options.clients if repeat >= 0 else options.clients[-1:]
                for clients in levels:
                    for server in servers:
                        run = asyncio.run(run_level(server, asked, clients, repeat, salt))
                        if repeat >= 0:
                            runs.append(run)
    except subprocess.SubprocessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for line in table(runs):
        print(line)
    if options.json:
        settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
        document = {
            "machine": asdict(machine),
            "settings": settings,
            "runs": [
                asdict(r) | {"tokens_per_second": r.tokens_per_second, "fairness": r.fairness}
                for r in runs
            ],
        }
        write_file(options.json, json.dumps(document, indent=1))
    return 0


def _options() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, help="start specdec-serve on it")
    parser.add_argument("--plain", action="store_true", help="and once more without drafting")
    parser.add_argument("--llama", type=Path, metavar="GGUF", help="start llama.cpp's server, too")
    parser.add_argument("--url", help="load a server that runs already")
    parser.add_argument("--model", default="default", help="its model's name")
    parser.add_argument("--key", default="none", help="its API key")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--soak", type=int, metavar="N", help="N mixed requests instead")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not (options.package or options.url or options.llama):
        parser.error("there is nothing to load: give --package, --llama or --url")
    if options.soak and not options.package:
        parser.error("--soak needs --package")
    threads = [] if options.threads is None else ["--num-threads", str(options.threads)]
    options.server_args = ["--slots", str(options.slots), *threads]
    return options


if __name__ == "__main__":
    sys.exit(main())
