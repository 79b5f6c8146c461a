"""The published schemas are those of the records, and documents keep to them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from specdec.engines import read_package
from specdec.runtime.report.inspection import inspect_package
from specdec.runtime.report.records import to_data

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script() -> Any:
    path = ROOT / "scripts" / "report_schema.py"
    spec = importlib.util.spec_from_file_location("report_schema", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["report.schema.json", "bench.schema.json"])
def test_the_published_schema_is_current(script: Any, name: str) -> None:
    published = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert published == script.schema_text(script.SCHEMAS[name]), "run scripts/report_schema.py"


def test_a_real_report_keeps_to_the_schema(tiny_package: Path) -> None:
    validator = schema_validator("report.schema.json")
    document = json.loads(json.dumps(to_data(inspect_package(read_package(tiny_package)))))
    validator.validate(document)
    document["report"]["measured"][0]["speedup"] = "fast"
    assert not validator.is_valid(document)


def test_every_record_is_described(script: Any) -> None:
    for name in script.SCHEMAS:
        schema = json.loads((ROOT / "docs" / name).read_text(encoding="utf-8"))
        assert all(definition["description"] for definition in schema["$defs"].values())


def schema_validator(name: str) -> Any:
    jsonschema = pytest.importorskip("jsonschema", reason="validates the documents")
    schema = json.loads((ROOT / "docs" / name).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)
