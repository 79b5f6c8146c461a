"""Reads the document that `peers.py --json` writes, and writes it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from systems.configurations import CONFIGURATIONS, Configuration
from systems.table import Record

from specdec.engines.storage.writing import write_file

__all__ = ["DocumentError", "PeersRun", "read_run", "write_run"]


class DocumentError(Exception):
    """The file is not a document of `peers.py`; the message is one line."""


@dataclass(frozen=True)
class PeersRun:
    """One run of `peers.py`."""

    machine: dict[str, Any]
    versions: dict[str, dict[str, str]]
    """Of each peer's packages."""
    settings: dict[str, Any]
    prompts: int
    records: dict[float, list[Record]]
    """By temperature."""

    def configurations(self, temperature: float) -> list[Configuration]:
        """What was measured at this temperature, in the order of the list."""
        measured = {record.configuration for record in self.records[temperature]}
        return [c for c in CONFIGURATIONS if c.name in measured]


def write_run(run: PeersRun, path: Path) -> None:
    """Write the document, a line for each request."""
    head = asdict(run)
    del head["records"]
    lines = [
        json.dumps({"temperature": temperature, **asdict(record)})
        for temperature, measured in run.records.items()
        for record in measured
    ]
    text = json.dumps(head, indent=1).removesuffix("\n}")
    write_file(path, f'{text},\n "records": [\n' + ",\n".join(lines) + "\n]\n}\n")


def read_run(path: Path) -> PeersRun:
    """Read a document.

    Raises:
        DocumentError: the file cannot be read, or holds something else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        records: dict[float, list[Record]] = {}
        for entry in document["records"]:
            temperature = float(entry.pop("temperature"))
            entry["token_ids"] = tuple(entry["token_ids"])
            records.setdefault(temperature, []).append(Record(**entry))
        run = PeersRun(
            document["machine"],
            document["versions"],
            document["settings"],
            int(document["prompts"]),
            records,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DocumentError(f"{path} is no document of peers.py ({reason})") from error
    names = {c.name for c in CONFIGURATIONS}
    for measured in run.records.values():
        for record in measured:
            if record.configuration not in names:
                raise DocumentError(
                    f"{path} has {record.configuration!r}, which this release of peers.py does not "
                    "measure; run peers.py --json again"
                )
    return run
