"""Records through JSON and back, and everything that is refused on the way in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specdec.engines import PackageError
from specdec.runtime.report import Report, from_data, to_data


def test_a_report_survives_json(tiny_report: Report) -> None:
    text = json.dumps(to_data(tiny_report), allow_nan=False)
    assert from_data(Report, json.loads(text)) == tiny_report


def put(data: dict[str, Any], path: str, value: object) -> None:
    *parents, last = path.split(".")
    for name in parents:
        data = data[int(name)] if isinstance(data, list) else data[name]
    data[int(last) if isinstance(data, list) else last] = value


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("format", 2, "report.format is 2; allowed is one of [1]"),
        ("format", True, "report.format is True"),
        ("level", "deep", "report.level is 'deep'"),
        ("created", 5, "report.created is 5; allowed is text"),
        ("machine.cores", 2.5, "report.machine.cores is 2.5; allowed is a whole number"),
        ("machine.cores", True, "report.machine.cores is True"),
        ("machine.copy_bytes_per_second", float("nan"), "allowed is a finite number"),
        ("machine.copy_bytes_per_second", float("inf"), "allowed is a finite number"),
        ("machine.cpu", None, "report.machine.cpu is None; allowed is text"),
        ("costs.contexts", {}, "report.costs.contexts is {}; allowed is an array"),
        ("costs.contexts.0.verify_seconds", {"x": 1.0}, "keys are whole numbers"),
        ("costs.contexts.0.verify_seconds", {"-1": 1.0}, "keys are whole numbers"),
        ("costs.contexts.0.verify_seconds", [1.0], "allowed is an object"),
        ("costs.memory", [], "report.costs.memory is []; allowed is an object"),
        ("costs.memory.extra", 1, "report.costs.memory is with an unknown 'extra'"),
        ("quality.acceptance.0.by_position.0", [1], "an array of 2"),
        ("verdict.decision", "maybe", "report.verdict.decision is 'maybe'"),
    ],
)
def test_what_is_refused(tiny_report: Report, path: str, value: object, reason: str) -> None:
    data = to_data(tiny_report)
    put(data, path, value)
    with pytest.raises(PackageError) as caught:
        from_data(Report, data)
    message = str(caught.value)
    assert reason in message
    assert message.endswith("measure again with specdec-inspect --measure")
    assert "\n" not in message


def test_a_missing_field_is_named(tiny_report: Report) -> None:
    data = to_data(tiny_report)
    del data["verdict"]["headline"]
    with pytest.raises(PackageError, match=r"report\.verdict is without 'headline'"):
        from_data(Report, data)
