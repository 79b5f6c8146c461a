"""Energy from system files, on trees laid out like the kernel's."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from specdec.runtime.report.bench.energy import EnergyMeter, EnergySource, find_sources


def rapl(root: Path, name: str, joules: float, limit: float = 262143.0) -> Path:
    zone = root / "class" / "powercap" / name
    zone.mkdir(parents=True)
    (zone / "energy_uj").write_text(f"{round(joules * 1e6)}\n")
    (zone / "max_energy_range_uj").write_text(f"{round(limit * 1e6)}\n")
    return zone / "energy_uj"


def test_packages_are_added_and_their_parts_are_not_counted_twice(tmp_path: Path) -> None:
    first, second = rapl(tmp_path, "intel-rapl:0", 10.0), rapl(tmp_path, "intel-rapl:1", 5.0)
    rapl(tmp_path, "intel-rapl:0:0", 3.0)
    sources = find_sources(tmp_path)
    assert [source.name for source in sources] == ["RAPL intel-rapl:0", "RAPL intel-rapl:1"]
    with EnergyMeter(sources) as meter:
        first.write_text("12000000\n")
        second.write_text("5500000\n")
    assert meter.joules == pytest.approx(2.5)


def test_a_counter_that_wraps(tmp_path: Path) -> None:
    counter = rapl(tmp_path, "intel-rapl:0", 99.0, limit=100.0)
    with EnergyMeter(find_sources(tmp_path)) as meter:
        counter.write_text("2000000\n")
    assert meter.joules == pytest.approx(3.0)


def test_a_jetson_rail_is_integrated(tmp_path: Path) -> None:
    rail = tmp_path / "bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
    rail.mkdir(parents=True)
    for index, name in ((1, "VDD_IN"), (2, "VDD_CPU_GPU_CV")):
        (rail / f"in{index}_label").write_text(f"{name}\n")
        (rail / f"in{index}_input").write_text("5000\n")
        (rail / f"curr{index}_input").write_text("2000\n")
    sources = find_sources(tmp_path)
    assert [source.name for source in sources] == ["Jetson VDD_IN"]
    start = time.perf_counter()
    with EnergyMeter(sources) as meter:
        time.sleep(0.2)
    elapsed = time.perf_counter() - start
    assert meter.joules is not None
    assert 10.0 * 0.15 <= meter.joules <= 10.0 * elapsed


def test_what_cannot_be_read_is_no_source(tmp_path: Path) -> None:
    assert find_sources(tmp_path) == []
    broken = rapl(tmp_path, "intel-rapl:0", 1.0)
    broken.write_text("not a number")
    assert find_sources(tmp_path) == []


def test_nothing_measures() -> None:
    with EnergyMeter([]) as meter:
        pass
    assert meter.joules is None
    values = iter([1.0, 4.5])
    with EnergyMeter([EnergySource("counter", lambda: next(values))]) as meter:
        pass
    assert meter.joules == 3.5
