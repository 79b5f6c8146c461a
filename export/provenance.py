"""The record of how a package was made: sources, precisions, and the versions of what made it."""

from __future__ import annotations

from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specdec.export.preflight import Plan

__all__ = ["provenance"]

_VERSIONED = (
    *("specdec", "optimum", "optimum-onnx", "transformers", "torch", "onnx"),
    *("onnxruntime", "onnxruntime-gpu"),
)
"""Distributions whose versions a package records, as far as they are installed."""


def provenance(plan: Plan, calibration: dict[str, Any]) -> dict[str, Any]:
    """How the package was made, without paths of the machine that made it.

    Args:
        calibration: how the ranges of the draft's activations were found; empty for none.
    """
    versions = {}
    for name in _VERSIONED:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    draft = plan.options.draft
    return {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "target": Path(plan.options.target).name,
        "draft": draft if draft in ("self", "none") else Path(draft).name,
        "target_architecture": plan.target_config.model_type,
        "target_precision": plan.options.target_precision,
        "draft_precision": plan.options.draft_precision if plan.draft is not None else None,
        "backend": plan.options.backend,
        "device": "cuda" if plan.options.is_for_gpu else "cpu",
        **({"calibration": calibration} if calibration else {}),
        "max_length": plan.max_length,
        "versions": versions,
    }
