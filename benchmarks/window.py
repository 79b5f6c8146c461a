"""The adaptive window against every fixed number of drafted tokens, on each prompt category.

All settings take turns on each prompt, so a drifting machine does not decide. Reported is the
decoding speed relative to plain decoding (num_draft_tokens = 0), median over repeats, the best
fixed K in hindsight, and how far "auto" is from it.

    python benchmarks/window.py PACKAGE [--tokens 128] [--repeats 3] [--temperature 0]
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from specdec.engines.storage.writing import write_file
from specdec.runtime import SamplingParams, SpeculativeDecoder
from specdec.runtime.report.measuring.machine import describe_machine
from specdec.runtime.report.measuring.prompt_set import load_prompts, one_per_category, prompt_ids

FIXED = (1, 2, 3, 4, 5, 6, 8, 10)


def measure(
    decoder: SpeculativeDecoder, ids: list[int], tokens: int, repeats: int, temperature: float
) -> dict[str, float]:
    """Median tokens per second by setting, the settings taking turns."""
    speeds: dict[str, list[float]] = {}
    for repeat in range(repeats + 1):
        for setting in (0, *FIXED, "auto"):
            params = SamplingParams(
                max_new_tokens=tokens,
                num_draft_tokens=setting,
                temperature=temperature,
                ignore_eos=True,
            )
            stats = decoder.generate(ids, params).stats
            if repeat:  # the first turn warms up
                speeds.setdefault(str(setting), []).append(stats.tokens_per_second)
    return {setting: statistics.median(values) for setting, values in speeds.items()}


def report(category: str, speeds: dict[str, float]) -> dict[str, Any]:
    """Print one line and return its figures."""
    plain = speeds["0"]
    ratios = {setting: speed / plain for setting, speed in speeds.items()}
    best = max((str(k) for k in (0, *FIXED)), key=lambda setting: ratios[setting])
    gap = ratios["auto"] / ratios[best] - 1
    row = " ".join(f"{k}:{ratios[str(k)]:.2f}" for k in FIXED)
    print(
        f"{category:12s} plain {plain:5.1f} tok/s | {row} | auto {ratios['auto']:.2f} "
        f"(best fixed K={best} {ratios[best]:.2f}, {gap:+.1%})",
        flush=True,
    )
    return {"category": category, "plain": plain, "ratios": ratios, "best": best, "gap": gap}


def main() -> None:
    """Measure and print; `--json` also writes the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(describe_machine("cpu"))
    rows = []
    with SpeculativeDecoder.load(arguments.package) as decoder:
        for prompt in one_per_category(load_prompts()):
            ids = prompt_ids(decoder, prompt.text)
            speeds = measure(
                decoder, ids, arguments.tokens, arguments.repeats, arguments.temperature
            )
            rows.append(report(f"{prompt.category}/{prompt.language}", speeds))
    mean = statistics.geometric_mean(row["ratios"]["auto"] for row in rows)
    print(f"auto over plain, geometric mean of {len(rows)} prompts: {mean:.2f}")
    if arguments.json:
        write_file(arguments.json, json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
