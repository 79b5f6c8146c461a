"""Files that the documentation and the code's own words name are there."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = "engines|runtime|export|cli|tests|benchmarks|docs|examples|scripts"
ENDINGS = "py|md|json|cpp|hpp|h|sh|css|txt|supp|ipynb|toml|png|svg"
NAMED = re.compile(rf"(?<![\w/.-])((?:{FOLDERS})/[\w./-]*?\.(?:{ENDINGS}))\b")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
ELSEWHERE = {"docs/peers.json", "docs/OperatorKernels.md"}
"""A file that a command named beside it writes, and one of ONNX Runtime's."""


def _tracked(pattern: str) -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split()]


def _words(path: Path) -> Iterator[str]:
    """The text of a page; of a module its docstrings, messages and comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    yield from re.findall(r"#.*", text)


def _missing(words: str, root: Path = ROOT) -> list[str]:
    names = set(NAMED.findall(words)) - ELSEWHERE
    return sorted(n for n in names if not ((ROOT / n).exists() or (root / n).exists()))


PAGES = [p for p in _tracked("*.md") if p.name != "CHANGELOG.md"]  # what it names may be gone
MODULES = [
    p
    for folder in ("engines", "runtime", "export", "cli", "benchmarks", "scripts", "examples")
    for p in _tracked(f"{folder}/*.py")
]


@pytest.mark.parametrize("path", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_a_page_names_and_links_what_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    # docs/defects.md leaves `tests/` out of its paths, and says so.
    assert _missing(text, ROOT / "tests" if path.name == "defects.md" else ROOT) == []
    for target, anchor in LINK.findall(text):
        linked = (path.parent / target).resolve()
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            assert anchor[1:] in _anchors(linked), f"{target}{anchor}"


def test_the_code_names_what_is_there() -> None:
    found = {
        str(path.relative_to(ROOT)): missing
        for path in MODULES
        for words in _words(path)
        if (missing := _missing(words))
    }
    assert found == {}


def test_a_name_that_is_gone_is_found() -> None:
    assert _missing("see docs/gone.md and docs/sampling.md") == ["docs/gone.md"]
    assert _missing("`engines/onnxruntime/gone.py`: no") == ["engines/onnxruntime/gone.py"]
    assert "what-it-needs" in _anchors(ROOT / "docs" / "export.md")


def test_modules_that_the_pages_name_are_there() -> None:
    for path in PAGES:
        for name in re.findall(r"\bspecdec(?:\.[a-z_0-9]+)+", path.read_text(encoding="utf-8")):
            parts = name.split(".")[1:]
            if parts[0] not in ("engines", "runtime", "export", "cli"):
                continue
            place = ROOT.joinpath(*parts)
            inside = place.parent / "__init__.py", place.parent.with_suffix(".py")
            known = place.is_dir() or place.with_suffix(".py").exists()
            assert known or any(
                f.exists() and re.search(rf"\b{parts[-1]}\b", f.read_text("utf-8")) for f in inside
            ), f"{path.name}: {name}"


def _anchors(page: Path) -> set[str]:
    """Ids of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {text.strip().replace(" ", "-") for text in kept}
