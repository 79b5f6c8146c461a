"""Losslessness that a user can check: `audit` runs a pair against its target alone.

Greedy texts must be equal token for token, the cache must forget what was cut off, and what
the loop commits when sampling must follow the target's exact law: see `greedy`, `sampling` and
`statistics`. Needs nothing beyond NumPy and the engines.
"""

from specdec.runtime.audit.report import (
    AuditReport,
    GreedyDifference,
    GreedyReport,
    RollbackReport,
    SamplingReport,
    TestReport,
)
from specdec.runtime.audit.run import AuditPlan, audit, default_settings

__all__ = [
    "AuditPlan",
    "AuditReport",
    "GreedyDifference",
    "GreedyReport",
    "RollbackReport",
    "SamplingReport",
    "TestReport",
    "audit",
    "default_settings",
]
