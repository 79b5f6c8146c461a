"""The tree of folders is the one that the build and CONTRIBUTING.md describe."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("engines", "runtime", "export", "cli")
FOLDERS = sorted(path.parent for part in PARTS for path in (ROOT / part).rglob("__init__.py"))
MOST_FILES = 18
MOST_LINES = 300


def _tool(table: str) -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf"^\[{re.escape(table)}\]\n(.*?)(?=^\[|\Z)", text, re.M | re.S)
    assert found, table
    return found[1]


def _listed() -> list[Path]:
    """Files of the project, as git sees them; relative to its root."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: what belongs to the project cannot be told from the rest")
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(name) for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_every_folder_is_built() -> None:
    names = {
        f"specdec.{'.'.join(folder.relative_to(ROOT).parts)}": str(folder.relative_to(ROOT))
        for folder in FOLDERS
    }
    assert set(re.findall(r'^  "([\w.]+)",$', _tool("tool.setuptools"), re.M)) == set(names)
    listed = re.findall(r'^"([\w.]+)" = "([\w/]+)"$', _tool("tool.setuptools.package-dir"), re.M)
    assert dict(listed) == names


@pytest.mark.parametrize("folder", FOLDERS, ids=[str(f.relative_to(ROOT)) for f in FOLDERS])
def test_a_folder_says_what_it_holds_and_who_may_use_it(folder: Path) -> None:
    documentation = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8")))
    assert documentation
    holds, rules = documentation.split("\n\n", 1)
    assert len(holds.split()) >= 8, holds
    assert re.search(r"\b(use|uses|imports)\b.*\bmay\s+use\b", rules, re.S), rules


def test_files_are_few_in_a_folder_and_short() -> None:
    modules = [path for path in _listed() if path.suffix == ".py"]
    counted: dict[Path, int] = {}
    for module in modules:
        counted[module.parent] = counted.get(module.parent, 0) + (module.name != "__init__.py")
        assert len((ROOT / module).read_text("utf-8").splitlines()) <= MOST_LINES, module
    assert {str(f): n for f, n in counted.items() if n > MOST_FILES} == {}


def test_the_map_in_contributing_names_every_folder_once() -> None:
    there = {str(folder) for path in _listed() for folder in path.parents if folder.parts}
    mirrored = {name for name in there if name.startswith("tests/")}
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([\w./]+)/` \|", text, re.M)
    assert sorted(named) == sorted(there - mirrored)


def test_the_tests_mirror_the_code() -> None:
    folders = {path.parent for path in _listed() if path.parts[0] == "tests"}
    code = {path.parent for path in _listed() if path.parts[0] in (*PARTS, "benchmarks")}
    own = {Path("tests"), Path("tests/support"), Path("tests/hostile"), Path("tests/docs")}
    own.add(Path("tests/export/genai/int4"))  # a model folder, as its maker writes it
    unknown = {f for f in folders - own if f.relative_to("tests") not in code}
    assert unknown == set()


@pytest.mark.slow
def test_a_planted_import_breaks_a_contract(tmp_path: Path) -> None:
    """The rules of pyproject.toml over a copy of the tree in which a folder imports upwards."""
    pytest.importorskip("importlinter", reason="holds the contracts")
    for part in PARTS:
        for path in (ROOT / part).rglob("*.py"):
            copy = tmp_path / "specdec" / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    assert _contracts(tmp_path) == (0, "")
    for importer, imported, contract in (
        ("engines/devices.py", "specdec.runtime.errors", "imports run one way"),
        ("engines/tensorrt/load.py", "specdec.engines.onnxruntime.load", "rooms of engines"),
        ("runtime/decoding/rounds.py", "specdec.runtime.decoder", "rooms of the runtime"),
        ("runtime/report/drawing/page.py", "specdec.runtime.report.bench.package", "report"),
        ("export/sources/hub.py", "specdec.export.graphs.tracing", "rooms of the export"),
        ("cli/run.py", "specdec.cli.bench", "rooms of the commands"),
        ("runtime/checks.py", "onnx", "light"),
    ):
        path = tmp_path / "specdec" / importer
        kept = path.read_bytes()
        path.write_bytes(kept + f"\nimport {imported}\n".encode())
        code, broken = _contracts(tmp_path)
        path.write_bytes(kept)
        assert code == 1, importer
        assert contract in broken, (importer, broken)


def _contracts(folder: Path) -> tuple[int, str]:
    """Exit code of the linter over `folder`, and the lines of what is broken."""
    done = subprocess.run(
        ["lint-imports", "--no-cache"],
        cwd=folder,
        env={
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(folder),
            "COLUMNS": "400",
            "NO_COLOR": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, "\n".join(x for x in done.stdout.splitlines() if "BROKEN" in x)
