"""Killed at every file operation, each writer leaves the old content or the new one, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec.engines import PackageError, read_package
from tests.hostile.injector import run

FILE = """
import sys
from pathlib import Path
from specdec.engines.storage.writing import write_file
from tests.hostile.kills import kill_everywhere

path = Path(sys.argv[1])
states = set()

def prepare():
    path.write_text("old")

def check(moment):
    states.add(path.read_text())
    assert len(list(path.parent.iterdir())) <= 2, moment
    write_file(path, "after")
    assert path.read_text() == "after"
    assert list(path.parent.iterdir()) == [path], moment

print(kill_everywhere(prepare, lambda: write_file(path, "new"), check))
assert states == {"old", "new"}, states
"""


def test_a_file_is_old_or_new(tmp_path: Path) -> None:
    assert run(FILE, tmp_path / "report.json") >= 5


PACKAGE = """
import sys
from pathlib import Path
from specdec.engines.storage import renames
from specdec.export import staging
from specdec.export.staging import staged
from tests.hostile.kills import kill_everywhere

out, way, existing = Path(sys.argv[1]) / "package", sys.argv[2], sys.argv[3] == "existing"
if way == "renames":
    renames.system_exchange = lambda first, second: 38  # ENOSYS
states = set()

def make(text):
    with staged(out, overwrite=existing) as scratch:
        (scratch / "sub").mkdir()
        for name in ("specdec.json", "sub/weights"):
            (scratch / name).write_text(text)

def content():
    if not out.exists():
        return None
    texts = {path.read_text() for path in out.rglob("*") if path.is_file()}
    assert len(texts) == 1 and len(list(out.rglob("*"))) == 3, texts
    return texts.pop()

def prepare():
    import shutil
    for path in out.parent.iterdir():
        shutil.rmtree(path)
    if existing:
        make("old")

def check(moment):
    left = [path.name for path in out.parent.iterdir() if path != out]
    state = content()
    states.add(state)
    assert state is not None or not existing or any("replaced" in name for name in left), moment
    # What the next export of this name finds at its start, whatever becomes of itself.
    try:
        with staged(out, overwrite=existing):
            found = content()
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert found == (state if state is not None or not existing else "old"), (moment, found)
    assert [path for path in out.parent.iterdir() if path != out] == [], moment

print(kill_everywhere(prepare, lambda: make("new"), check))
expected = {"old", "new"} if existing else {None, "new"}
assert states - {None} == expected - {None}, states
assert (None in states) == (not existing or way == "renames"), states
"""


@pytest.mark.parametrize("way", ["exchange", "renames"])
@pytest.mark.parametrize("existing", ["existing", "fresh"])
def test_a_package_is_old_or_new_or_comes_back(tmp_path: Path, way: str, existing: str) -> None:
    assert run(PACKAGE, tmp_path, way, existing) >= 10


CACHE = """
import json, sys
from pathlib import Path
from specdec.engines.onnxruntime import load_cache
from tests.hostile.kills import kill_everywhere

cache, graph = Path(sys.argv[1]) / "cache", Path(sys.argv[1]) / "model.onnx"
graph.write_text("graph")
load_cache.cache_folder = lambda cache, content: cache / content

def save(path):
    path.write_text("optimized")
    path.with_name(path.name + ".data").write_text("weights")

def load():
    return load_cache.mapped_graph(graph, cache, "content", save, "target")

def prepare():
    import shutil
    shutil.rmtree(cache, ignore_errors=True)

def check(moment):
    found = load()
    assert found == cache / "content" / "model.onnx", moment
    assert found.read_text() == "optimized", moment
    names = sorted(path.name for path in found.parent.iterdir())
    assert names == ["complete.json", "model.onnx", "model.onnx.data"], (moment, names)
    assert [path.name for path in cache.iterdir()] == ["content"], moment

print(kill_everywhere(prepare, load, check))
"""


def test_the_load_cache_is_whole_or_made_again(tmp_path: Path) -> None:
    assert run(CACHE, tmp_path) >= 10


def test_a_load_between_the_two_renames_says_where_the_package_is(tmp_path: Path) -> None:
    (tmp_path / ".package.replaced-0").mkdir()
    with pytest.raises(PackageError, match=r"cut off, and what it held is in .*replaced-0; rename"):
        read_package(tmp_path / "package")
