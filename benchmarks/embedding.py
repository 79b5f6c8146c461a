"""Measure the cost of embedding: the C path against Python's, memory, waiting threads, a soak.

    python benchmarks/embedding.py PACKAGE [--pairs 30] [--tokens 64] [--soak 2000]

Builds libspecdec.so and embedding.cpp, then measures in turn

- tokens per second and time to the first token of a C++ and a Python process that take turns,
  as the median over the pairs of their ratio (the machine's drift hits both halves of a pair);
- resident memory: of a bare C++ process, once the interpreter has started, with the package;
- how long a second thread waits for a call of the library while engines run: far less than a
  pass, since engines run without Python's lock;
- one decoder against a pool of two that share the cores;
- memory over a soak of short requests, a third of them cancelled.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from specdec.runtime.embed.builder import build_library

HERE = Path(__file__).resolve().parent

PYTHON_SIDE = """
import sys, time
from specdec.runtime import SamplingParams, SpeculativeDecoder

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

def params(tokens):
    return SamplingParams(max_new_tokens=tokens, num_draft_tokens=4, ignore_eos=True)

prompt = "Here is a short story about a lighthouse keeper."
with SpeculativeDecoder.load(sys.argv[1]) as decoder:
    decoder.generate(prompt, params(16))
    print("loaded_mb", resident(), flush=True)
    for turn in sys.stdin:
        start, first, count = time.perf_counter(), 0.0, 0
        for chunk in decoder.stream(prompt, params(int(sys.argv[2]))):
            first = first or time.perf_counter() - start
            count += len(chunk.token_ids)
        rest = time.perf_counter() - start - first
        print("first_ms", 1e3 * first, "tokens_per_second", (count - 1) / rest, flush=True)
"""


class Side:
    """A process that plays one generation when it is told to."""

    def __init__(self, *command: object) -> None:
        pipe = subprocess.PIPE
        words = [str(word) for word in command]
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
        self.memory = self._figures()

    def play(self) -> dict[str, float]:
        """One generation; its figures."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self._figures()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _figures(self) -> dict[str, float]:
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        return dict(zip(words[::2], map(float, words[1::2]), strict=True))


def measure(*command: object) -> dict[str, list[float]]:
    """Run one side and collect its lines of "name value ..."."""
    done = subprocess.run(
        [str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, list[float]] = defaultdict(list)
    for line in done.stdout.splitlines():
        words = line.split()
        for name, value in zip(words[::2], words[1::2], strict=True):
            found[name].append(float(value))
    return found


def build(folder: Path) -> Path:
    """Build the library and the C++ program; returns the program."""
    library = build_library(folder)
    program = folder / "embedding"
    flags = ["-std=c++17", "-O2", f"-I{folder / 'include'}", f"-Wl,-rpath,{library.parent}"]
    command = ["c++", *flags, str(HERE / "embedding.cpp"), str(library), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def compare(program: Path, package: Path, pairs: int, tokens: int) -> None:
    """Alternate C++ and Python; print speeds, first tokens and memory."""
    native = Side(program, "speed", package, tokens)
    python = Side(sys.executable, "-c", PYTHON_SIDE, package, tokens)
    played = []
    for index in range(pairs):
        order = (native, python) if index % 2 == 0 else (python, native)
        figures = {side: side.play() for side in order}
        played.append((figures[native], figures[python]))
    for side in (native, python):
        side.close()
    for name, unit in (("tokens_per_second", "tokens/s"), ("first_ms", "ms to the first token")):
        medians = [statistics.median(pair[i][name] for pair in played) for i in (0, 1)]
        ratio = statistics.median(pair[0][name] / pair[1][name] for pair in played)
        print(
            f"C++ {medians[0]:.1f}, Python {medians[1]:.1f} {unit} (medians of {pairs}); "
            f"median ratio of a pair {ratio:.3f}"
        )
    memory = native.memory
    print(
        f"memory: bare process {memory['bare_mb']:.0f} MB, interpreter and runtime "
        f"{memory['started_mb'] - memory['bare_mb']:.0f} MB more, with the package "
        f"{memory['loaded_mb']:.0f} MB (Python process {python.memory['loaded_mb']:.0f} MB)"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--soak", type=int, default=2000, help="requests; 0 leaves it out")
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    print(f"{options.tokens} greedy tokens, K = 4")
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        if options.pairs:
            compare(program, options.package, options.pairs, options.tokens)
        waits = measure(program, "latency", options.package)
        waited = f"{waits['median_ms'][0]:.2f} ms (median), {waits['p95_ms'][0]:.2f} ms (p95)"
        print(f"another thread waits {waited} beside passes of {waits['verify_pass_ms'][0]:.1f} ms")
        for count in (1, 2):
            found = measure(program, "pool", options.package, count)
            print(
                f"{count} decoder(s): {found['tokens_per_second'][0]:.1f} tokens/s together, "
                f"{found['resident_mb'][0]:.0f} MB"
            )
        if options.soak:
            found = measure(program, "soak", options.package, options.soak)
            sizes = ", ".join(f"{size:.1f}" for size in found["resident_mb"])
            cancelled = int(found["cancelled"][0])
            print(f"soak of {options.soak} requests, {cancelled} cancelled; MB resident: {sizes}")


if __name__ == "__main__":
    main()
