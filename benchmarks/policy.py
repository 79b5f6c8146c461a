"""Compare draft-length policies on a virtual clock: record a trace once, replay any policy.

    python benchmarks/policy.py record PACKAGE TRACE [--tokens 96] [--contexts 0,512,2048]
    python benchmarks/policy.py replay TRACE [--state shared] [--drafter both] [--weaken 1]

Wall-clock runs on a busy machine scatter by more than policies differ. A recording takes some
minutes (all built-in prompts, and one of each category in longer contexts; the package needs a
draft that shares the target's cache), a replay seconds. Reported is the speed over plain decoding
by context, temperature and category, summed over plays that begin and end at different places
of each text, beside the best fixed K of the draft model in hindsight, which has the luck of the
same plays on its side.

`--state`: "shared", one decoder after the other prompts of its group; "mixed", one decoder for
all contexts in random order; "fresh", a new process for each prompt; "seeded", costs of the
package alone, as for sampled text with a seed. `--weaken F` multiplies every chance of the draft
model's tokens by F.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

import numpy as np
from policies.replay import BOTH, Clock, play
from policies.trace import Case, Trace, record

from specdec.runtime import SpeculativeDecoder
from specdec.runtime.drafting.acceptance import AcceptanceTable
from specdec.runtime.drafting.costs import DEFAULT_COSTS, CostTable
from specdec.runtime.drafting.draft_length import AdaptiveLength, DraftLength, FixedLength
from specdec.runtime.drafting.drafter import LOOKUP, MODEL

FIXED = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
DRAFTERS = {"both": BOTH, "model": (MODEL,), "lookup": (LOOKUP,)}


class State:
    """What a process knows: the costs it measured and the draft's acceptance."""

    def __init__(self, trace: Trace, frozen: bool) -> None:
        self._costs = CostTable.from_mapping(trace.seed_costs) or DEFAULT_COSTS.fresh()
        self._acceptance = AcceptanceTable()
        self._frozen = frozen

    def policy(self, context: int, lookups: AcceptanceTable) -> DraftLength:
        """For one generation, as `Generation` makes it."""
        return AdaptiveLength(
            self._costs,
            self._acceptance,
            lookups=lookups,
            context=context,
            use_clock=not self._frozen,
        )


def groups(cases: list[Case], state: str, seed: int) -> Iterator[list[Case]]:
    """Cases that share a process, in its order."""
    if state in ("fresh", "seeded"):
        yield from ([case] for case in cases)
    elif state == "mixed":
        yield [cases[i] for i in np.random.default_rng(seed).permutation(len(cases))]
    else:
        for context in sorted({case.context for case in cases}):
            yield [case for case in cases if case.context == context]


def part(case: Case, seed: int) -> Case:
    """A part of the text that depends on the seed."""
    begin, end = 5 * seed % 29, len(case.text) - 3 * seed % 19
    prompt = [*case.prompt, *case.text[:begin]]
    return replace(case, prompt=prompt, text=case.text[begin:end], kept=case.kept[begin:end])


def replay(trace: Trace, state: str, drafter: str, plays: int) -> None:
    """Replay and print a table."""
    seconds: dict[tuple[int, float, str], dict[str, float]] = defaultdict(
        lambda: defaultdict(float)
    )
    worst: dict[tuple[int, float, str], float] = defaultdict(lambda: float("inf"))
    for temperature in sorted({case.temperature for case in trace.cases}):
        cases = [case for case in trace.cases if case.temperature == temperature]
        for seed in range(plays):
            clock = Clock(trace, temperature, seed)
            for group in groups(cases, state, seed):
                known = State(trace, frozen=state == "seeded")
                for case in (part(case, seed) for case in group):
                    key = (case.context, temperature, case.category)
                    auto = play(case, known.policy, clock, DRAFTERS[drafter], seed)
                    seconds[key]["auto"] += auto
                    for k in (0, *FIXED):
                        fixed = FixedLength(k)
                        spent = play(case, lambda *_: fixed, clock, (MODEL,), seed)  # noqa: B023
                        seconds[key][str(k)] += spent
                        if k == 0:
                            worst[key] = min(worst[key], spent / auto)
    print("| context | T | category | auto | best fixed K | auto over it | worst prompt |")
    print("|---|---|---|---|---|---|---|")
    gains = []
    for (context, temperature, category), sums in sorted(seconds.items()):
        best = min((str(k) for k in (0, *FIXED)), key=sums.__getitem__)
        gain, fixed_gain = sums["0"] / sums["auto"], sums["0"] / sums[best]
        gains.append((gain, fixed_gain))
        print(
            f"| {context} | {temperature:g} | {category} | {gain:.2f} "
            f"| {fixed_gain:.2f} (K = {best}) "
            f"| {gain / fixed_gain - 1:+.0%} | {worst[context, temperature, category]:.2f} |"
        )
    auto, fixed_mean = (geometric_mean(column) for column in zip(*gains, strict=True))
    print(
        f"| all | | geometric mean | {auto:.3f} | {fixed_mean:.3f} "
        f"| {auto / fixed_mean - 1:+.1%} | |"
    )


def main() -> None:
    """Record or replay."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("package", type=Path)
    recording.add_argument("trace", type=Path)
    recording.add_argument("--tokens", type=int, default=96)
    recording.add_argument("--contexts", default="0,512,2048")
    recording.add_argument("--temperatures", default="0,0.7")
    recording.add_argument("--repeats", type=int, default=7)
    replaying = commands.add_parser("replay")
    replaying.add_argument("trace", type=Path)
    replaying.add_argument(
        "--state", default="shared", choices=["shared", "mixed", "fresh", "seeded"]
    )
    replaying.add_argument("--drafter", default="both", choices=list(DRAFTERS))
    replaying.add_argument("--plays", type=int, default=16)
    replaying.add_argument("--weaken", type=float, default=1.0)
    options = parser.parse_args()
    if options.command == "replay":
        trace = Trace.load(options.trace)
        weaker = [replace(case, kept=case.kept * options.weaken) for case in trace.cases]
        replay(replace(trace, cases=weaker), options.state, options.drafter, options.plays)
        return
    manifest = json.loads((options.package / "specdec.json").read_text(encoding="utf-8"))
    with SpeculativeDecoder.load(options.package, drafter="model") as decoder:
        record(
            decoder,
            [int(context) for context in options.contexts.split(",")],
            [float(temperature) for temperature in options.temperatures.split(",")],
            options.tokens,
            options.repeats,
            manifest["costs"],
        ).save(options.trace)


if __name__ == "__main__":
    main()
