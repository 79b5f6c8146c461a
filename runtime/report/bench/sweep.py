"""A whole benchmark: packages and thread counts one after the other, each fully interleaved.

Loading is part of a setting, so two packages, or two thread counts, never run in turn: compare
their speed-ups, which are each against plain decoding in the same minutes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from specdec.engines.load import load_package
from specdec.engines.onnxruntime.options import DEFAULT_ORT_OPTIONS, OrtOptions
from specdec.engines.release import VERSION
from specdec.runtime.report.bench.contents import BenchReport, BenchResult
from specdec.runtime.report.bench.energy import find_sources
from specdec.runtime.report.bench.package import BenchSettings, bench_package
from specdec.runtime.report.measuring.machine import describe_machine
from specdec.runtime.report.measuring.memory import peak_memory
from specdec.runtime.report.measuring.runs import Run

__all__ = ["sweep"]


def sweep(
    packages: Sequence[Path],
    settings: BenchSettings,
    *,
    threads: Sequence[int | None] = (None,),
    device: str = "cpu",
    draft_device: str | None = None,
    ort: OrtOptions = DEFAULT_ORT_OPTIONS,
    on_run: Callable[[Run], None] | None = None,
) -> BenchReport:
    """Benchmark every package with every number of threads.

    Args:
        packages: directories.
        settings: what to play on each.
        threads: CPU threads of each engine; None is ONNX Runtime's choice.
        device: where targets run.
        draft_device: where drafts run; None is `device`.
        ort: how engines on ONNX Runtime run.
        on_run: called after each run.

    Raises:
        PackageError, DeviceError, EngineError: as `load_package`.
        InvalidParameterError: as `bench_package`.
    """
    sources = find_sources()
    results: list[BenchResult] = []
    needs_draft = settings.drafter not in ("ngram",)
    for path in packages:
        for num_threads in threads:
            with load_package(
                path,
                device=device,
                draft_device=draft_device,
                num_threads=num_threads,
                load_draft=needs_draft,
                ort=ort,
            ) as package:
                used = replace(settings, num_threads=num_threads)
                results += bench_package(package, used, sources, on_run)
    params = settings.params
    return BenchReport(
        format=1,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        specdec_version=VERSION,
        machine=describe_machine(device, draft_device, threads[0] if len(threads) == 1 else None),
        settings={
            "prompts": len(settings.prompts),
            "prompts_sha256": _checksum(settings.prompts),
            "repeats": settings.repeats,
            "max_new_tokens": params.max_new_tokens,
            "temperature": params.temperature,
            "top_k": params.top_k,
            "top_p": params.top_p,
            "verify": params.verify,
            "ignore_eos": params.ignore_eos,
        },
        energy_sources=tuple(source.name for source in sources),
        peak_memory=peak_memory(),
        results=tuple(results),
    )


def _checksum(prompts: Sequence[tuple[str, str]]) -> str:
    """SHA-256 of the texts, by which two benchmarks know that they ran the same ones."""
    return hashlib.sha256("\0".join(text for _, text in prompts).encode()).hexdigest()
