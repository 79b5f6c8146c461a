"""What the GPU check consists of; run as a program, the process in which sections run.

    python -m gpu.plan DEVICE cpu|cuda tiny|real WORK DEADLINE SECTION...

It writes a line of JSON before and after each section, see `gpu.process`.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from gpu.backends import provider, rtx
from gpu.demo import demo
from gpu.parity import export, greedy, logits
from gpu.process import program
from gpu.runtime import cross_device, cuda_graphs, reduced_head, refusals, sampling
from gpu.sections import Section, Setup, allotted, play
from gpu.speed import speed_of

__all__ = ["BUILT", "PARITY", "SECTIONS", "command"]

SECTIONS = (
    Section("export", 50, 5, export),
    Section("logits", 25, 2, logits),
    Section("greedy", 35, 2, greedy),
    Section("sampling", 40, 2, sampling),
    Section("reduced head", 25, 2, reduced_head),
    Section("CUDA graphs", 20, 2, cuda_graphs),
    Section("cross device", 20, 2, cross_device),
    Section("refusals", 25, 3, refusals),
    Section("speed, small", 80, 15, functools.partial(speed_of, 0)),
    Section("speed, large", 110, 30, functools.partial(speed_of, 1)),
    Section("demo", 80, 45, demo),
    Section("TensorRT-RTX", 30, 3, rtx),
    Section("TensorRT provider", 40, 3, provider),
)
"""In this order, with seconds of the usual 8 minutes and the fewest that make sense."""
PARITY = tuple(section.name for section in SECTIONS[:8])
"""Those that must have run for a verdict."""
BUILT = tuple(section.name for section in SECTIONS[8:10])
"""Those whose packages are built beside the others."""


_SHORT = 0.25
"""Of its usual seconds: with less, what a section does not finish is put down to the time."""


def command(setup: Setup, deadline: float, names: list[str]) -> list[str]:
    """The process that runs these sections until `deadline` (of `time.monotonic`)."""
    sizes = "tiny" if setup.tiny else "real"
    settings = [setup.device, setup.made_for, sizes, str(setup.work), str(deadline)]
    return [*program("gpu.plan"), *settings, *names]


def main() -> None:
    """Run the sections that the command line names."""
    device, made_for, sizes, work, deadline, *names = sys.argv[1:]
    # Lines of JSON go where stdout went; whatever a library prints joins the progress.
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(event: dict[str, Any]) -> None:
        print(json.dumps(event), file=events, flush=True)

    logging.disable(logging.INFO)
    setup = Setup(device, made_for, sizes == "tiny", Path(work))
    waiting = [section for section in SECTIONS if section.name in names]
    while waiting:
        section = waiting[0]
        seconds = allotted(waiting, float(deadline) - time.monotonic())
        short = seconds < _SHORT * section.seconds
        tell({"begin": section.name, "seconds": seconds, "short": short})
        _say(section.name)
        result = play(
            section, setup, seconds, _say, lambda so_far: tell({"so far": so_far.to_dict()})
        )
        tell({"end": result.to_dict()})
        del waiting[0]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
