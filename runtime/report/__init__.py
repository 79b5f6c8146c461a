"""Measure a package on this machine and judge it: is it safe, and is it faster than its target?

The export, the commands and the benchmarks use it; it may use the rest of the runtime, the engines
and nothing of the export.

from specdec.engines import load_package
from specdec.runtime.report import measure_package

with load_package("my-package") as package:
    report = measure_package(package, level="short")
print(report.verdict.headline)
"""

from specdec.runtime.report.contents import Level, Report, Verdict
from specdec.runtime.report.measure import measure_package
from specdec.runtime.report.records import from_data, to_data

__all__ = ["Level", "Report", "Verdict", "from_data", "measure_package", "to_data"]
