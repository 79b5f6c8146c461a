"""Write the JSON schemas of what `specdec-inspect --json` and `specdec-bench --json` print.

    .venv/bin/python scripts/report_schema.py

The records in `runtime/report` are the source: their types, and the strings under their fields
as descriptions. A test compares the files with what this would write.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from specdec.engines.storage.writing import write_file
from specdec.runtime.report.bench.contents import BenchReport
from specdec.runtime.report.inspection import Inspection

DOCS = Path(__file__).resolve().parent.parent / "docs"
SCHEMAS = {"report.schema.json": Inspection, "bench.schema.json": BenchReport}
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema_text(kind: type) -> str:
    """Return the schema of a record as a JSON document."""
    definitions: dict[str, Any] = {}
    root = _schema(kind, definitions)
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        name = kind.__name__
        if name not in definitions:
            definitions[name] = {}  # stands in while the record is described
            definitions[name] = _record(kind, definitions)
        return {"$ref": f"#/$defs/{name}"}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(choice, definitions) for choice in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is tuple:
        items = [_schema(item, definitions) for item in arguments]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if kind is Any:
        return {}
    return {"type": "null" if kind is type(None) else _SCALARS[kind]}


def _record(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    about = _descriptions(kind)
    properties = {}
    for name, hint in get_type_hints(kind).items():
        properties[name] = _schema(hint, definitions)
        if name in about:
            properties[name]["description"] = about[name]
    return {
        "type": "object",
        "description": " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split()),
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _descriptions(kind: Any) -> dict[str, str]:
    """Return the strings that stand under fields."""
    definition = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, following in itertools.pairwise(definition.body):
        match field, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def main() -> int:
    """Write the files."""
    for name, kind in SCHEMAS.items():
        write_file(DOCS / name, schema_text(kind))
    return 0


if __name__ == "__main__":
    sys.exit(main())
