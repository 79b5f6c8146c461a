"""The tree of folders is the one that the build and CONTRIBUTING.md describe."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(
    path.parent
    for part in ("engines", "runtime", "export", "cli")
    for path in (ROOT / part).rglob("__init__.py")
)


def _tool(table: str) -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf"^\[{re.escape(table)}\]\n(.*?)(?=^\[|\Z)", text, re.M | re.S)
    assert found, table
    return found[1]


def test_every_folder_is_built() -> None:
    names = {
        f"specdec.{'.'.join(folder.relative_to(ROOT).parts)}": str(folder.relative_to(ROOT))
        for folder in FOLDERS
    }
    assert set(re.findall(r'^  "([\w.]+)",$', _tool("tool.setuptools"), re.M)) == set(names)
    listed = re.findall(r'^"([\w.]+)" = "([\w/]+)"$', _tool("tool.setuptools.package-dir"), re.M)
    assert dict(listed) == names


@pytest.mark.parametrize("folder", FOLDERS, ids=[str(f.relative_to(ROOT)) for f in FOLDERS])
def test_a_folder_says_what_it_holds_and_stays_small(folder: Path) -> None:
    documentation = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8")))
    assert documentation
    assert len(documentation.split()) >= 8
    modules = list(folder.glob("*.py"))
    assert len(modules) <= 33, f"{len(modules)} files"
    for module in modules:
        assert len(module.read_text("utf-8").splitlines()) <= 300, module


def test_a_planted_import_breaks_a_contract(tmp_path: Path) -> None:
    """The rules of pyproject.toml over a copy of the tree in which a floor imports upwards."""
    pytest.importorskip("importlinter", reason="holds the contracts")
    for part in ("engines", "runtime", "export", "cli"):
        for path in (ROOT / part).rglob("*.py"):
            copy = tmp_path / "specdec" / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    assert _contracts(tmp_path) == (0, "")
    for importer, imported, contract in (
        ("engines/devices.py", "specdec.runtime.errors", "floors"),
        ("runtime/decoding/rounds.py", "specdec.runtime.decoder", "rooms of the runtime"),
        ("runtime/checks.py", "onnx", "light"),
    ):
        path = tmp_path / "specdec" / importer
        kept = path.read_bytes()
        path.write_bytes(kept + f"\nimport {imported}\n".encode())
        code, broken = _contracts(tmp_path)
        path.write_bytes(kept)
        assert code == 1
        assert re.search(rf"(one way|{contract}|{contract}).*BROKEN", broken), broken


def _contracts(folder: Path) -> tuple[int, str]:
    """Exit code of the linter over `folder`, and the lines of what is broken."""
    done = subprocess.run(
        ["lint-imports", "--no-cache"],
        cwd=folder,
        env={"PATH": _path(), "PYTHONPATH": str(folder), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, "\n".join(x for x in done.stdout.splitlines() if "BROKEN" in x)


def _path() -> str:
    import os
    import sys

    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
