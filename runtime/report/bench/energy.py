"""Measure the energy the machine uses while something runs, where the system has a counter.

Counters (joules since some start) are read before and after:
- RAPL: /sys/class/powercap/intel-rapl:<package>/energy_uj, CPU packages (Intel and AMD), which
  usually only root may read;
- NVML: nvmlDeviceGetTotalEnergyConsumption of every NVIDIA GPU.
A power meter (watts now) is sampled and integrated:
- Jetson: the INA3221 rail VDD_IN, volts times amperes, of the whole module.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from types import TracebackType

__all__ = ["EnergyMeter", "EnergySource", "find_sources"]

_SYSFS = Path("/sys")
_SAMPLE_SECONDS = 0.05
_JETSON_RAILS = ("VDD_IN", "POM_5V_IN", "VIN_SYS_5V0")


@dataclass(frozen=True)
class EnergySource:
    """One energy counter or power meter."""

    name: str
    joules: Callable[[], float] | None
    """Counter, None for a power meter."""
    watts: Callable[[], float] | None = None
    wraps_at: float = float("inf")
    """Joules at which the counter starts again."""


class EnergyMeter:
    """Measures the joules of a `with` block, over all sources together.

    Attributes:
        joules: of the last block; None where nothing measures.
    """

    def __init__(self, sources: Sequence[EnergySource]) -> None:
        self._sources = sources
        self._started: list[float] = []
        self._sampler: _Sampler | None = None
        self.joules: float | None = None

    def __enter__(self) -> EnergyMeter:
        self._started = [source.joules() for source in self._sources if source.joules]
        meters = [source.watts for source in self._sources if source.watts]
        self._sampler = _Sampler(meters) if meters else None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sampled = 0.0 if self._sampler is None else self._sampler.stop()
        counters = [source for source in self._sources if source.joules]
        for source, start in zip(counters, self._started, strict=True):
            assert source.joules is not None
            used = source.joules() - start
            sampled += used if used >= 0.0 else used + source.wraps_at
        self.joules = sampled if self._sources else None


class _Sampler:
    """Integrates power meters in a thread of its own."""

    def __init__(self, meters: Sequence[Callable[[], float]]) -> None:
        self._meters = meters
        self._joules = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """Joules since the start."""
        self._done.set()
        self._thread.join()
        return self._joules

    def _run(self) -> None:
        last = perf_counter()
        done = False
        while not done:
            done = self._done.wait(_SAMPLE_SECONDS)
            watts = sum(meter() for meter in self._meters)
            now = perf_counter()
            self._joules += watts * (now - last)
            last = now


def find_sources(root: Path = _SYSFS) -> list[EnergySource]:
    """Every source this process may read; none is a normal answer.

    Args:
        root: where sysfs is mounted.
    """
    return [*_rapl(root), *_jetson(root), *_nvml()]


def _rapl(root: Path) -> list[EnergySource]:
    sources = []
    for zone in sorted(root.glob("class/powercap/intel-rapl:*")):
        if zone.name.count(":") != 1:  # a part of a package, counted in it already
            continue
        counter, limit = zone / "energy_uj", zone / "max_energy_range_uj"
        try:
            _microjoules(counter)
            wraps_at = _microjoules(limit)
        except (OSError, ValueError):
            continue
        sources.append(
            EnergySource(f"RAPL {zone.name}", partial(_microjoules, counter), None, wraps_at)
        )
    return sources


def _microjoules(path: Path) -> float:
    return int(path.read_text()) / 1e6


def _jetson(root: Path) -> list[EnergySource]:
    for label in sorted(root.glob("bus/i2c/drivers/ina3221*/*/hwmon/hwmon*/in*_label")):
        try:
            if label.read_text().strip() not in _JETSON_RAILS:
                continue
            rail = label.name.removeprefix("in").removesuffix("_label")
            volts, amperes = (
                label.with_name(f"in{rail}_input"),
                label.with_name(f"curr{rail}_input"),
            )
            _watts(volts, amperes)
        except (OSError, ValueError):
            continue
        return [EnergySource("Jetson VDD_IN", None, partial(_watts, volts, amperes))]
    return []


def _watts(volts: Path, amperes: Path) -> float:
    """Of files in millivolts and milliamperes."""
    return int(volts.read_text()) * int(amperes.read_text()) / 1e6


def _nvml() -> list[EnergySource]:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    count = ctypes.c_uint(0)
    if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    sources = []
    for index in range(count.value):
        handle, used = ctypes.c_void_p(), ctypes.c_ulonglong()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            continue
        if library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(used)):
            continue
        sources.append(EnergySource(f"NVML GPU {index}", partial(_millijoules, library, handle)))
    return sources


def _millijoules(library: ctypes.CDLL, handle: ctypes.c_void_p) -> float:
    now = ctypes.c_ulonglong()
    library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(now))
    return now.value / 1e3
