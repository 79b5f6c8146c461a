"""Tests a user can run that a package is lossless: `audit` compares a pair with its target alone.

Greedy texts must be equal token for token, no truncated token may change a later one, and sampled
tokens must follow the target's exact distribution (`greedy`, `sampling`, `statistics`). The
commands and hosts with engines of their own use it; it may use the decoder and the engines.
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
