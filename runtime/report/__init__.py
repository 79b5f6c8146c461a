"""Is a package safe, and is it worth it on this machine? Measure it, and say so.

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
