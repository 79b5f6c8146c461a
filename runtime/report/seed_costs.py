"""Starting costs of the adaptive draft length, stored in a package."""

from __future__ import annotations

from typing import Any

from specdec.runtime.report.contents import Report

__all__ = ["seed_costs"]


def seed_costs(report: Report) -> dict[str, Any]:
    """The curves at the shortest context, as `drafting.costs.CostTable` reads them."""
    first = report.costs.contexts[0]
    costs: dict[str, Any] = {
        "verify_seconds": {str(rows): s for rows, s in sorted(first.verify_seconds.items())}
    }
    if first.draft_seconds is not None:
        costs["draft_seconds"] = first.draft_seconds
    return costs
