"""Graphs kept as optimized for this CPU: the same numbers, made once, never half written."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from specdec.engines import (
    EngineEntry,
    EngineError,
    FileEntry,
    OrtOptions,
    load_package,
)
from specdec.engines.load import _content
from specdec.engines.onnxruntime import session as ort_session
from specdec.engines.storage.holds import hold
from tests.engines.packages import TARGET_FIELDS, assert_one_line
from tests.engines.test_load import TOKENS, root  # noqa: F401


def logits(root: Path, **options: Any) -> np.ndarray:  # noqa: F811
    with load_package(root, num_threads=1, ort=OrtOptions(**options)) as package:
        assert package.draft is not None
        target = package.target.forward(TOKENS, 4).copy()
        package.target.truncate(0)
        return np.concatenate([target, package.draft.forward(TOKENS, 4)])


def test_the_same_numbers_and_nothing_made_twice(
    root: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache, saved = tmp_path / "new" / "cache", []
    save = ort_session._save

    def noted(graph: Path, name: str, out: Path) -> None:
        saved.append(name)
        save(graph, name, out)

    monkeypatch.setattr(ort_session, "_save", noted)
    expected = logits(root)
    assert saved == []
    for _ in range(2):
        np.testing.assert_array_equal(logits(root, load_cache=cache), expected)
    assert saved == ["target", "draft"]
    assert len(list(cache.iterdir())) == 2
    assert all((entry / "model.onnx").is_file() for entry in cache.iterdir())


def test_what_a_power_cut_left_is_made_again(
    root: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    cache = tmp_path / "cache"
    expected = logits(root, load_cache=cache)
    for entry in cache.iterdir():
        (entry / "model.onnx").write_bytes(b"")
    np.testing.assert_array_equal(logits(root, load_cache=cache), expected)
    assert all((entry / "model.onnx").stat().st_size > 0 for entry in cache.iterdir())


def test_a_damaged_entry_is_dropped(
    root: Path,  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = tmp_path / "cache"
    expected = logits(root, load_cache=cache)
    for entry in cache.iterdir():
        size = (entry / "model.onnx").stat().st_size
        (entry / "model.onnx").write_bytes(b"x" * size)
    np.testing.assert_array_equal(logits(root, load_cache=cache), expected)
    assert "the cached target engine does not load" in caplog.text
    assert list(cache.iterdir()) == []


def test_what_a_killed_process_left_is_removed(
    root: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    """A directory that a live process holds stays."""
    old, new = tmp_path / ".graph.partial-0", tmp_path / ".graph.partial-1"
    for path in (old, new):
        path.mkdir()
    held = hold(new)
    logits(root, load_cache=tmp_path)
    assert not old.exists()
    assert new.exists()
    assert held is not None
    os.close(held)


@pytest.mark.parametrize("folder", ["", "engines/"])
def test_engines_in_one_folder_are_told_apart(folder: str) -> None:
    """Known by its folder alone, one would be served for the other."""
    graphs = [f"{folder}target.onnx", f"{folder}draft.onnx"]

    def contents(*checksums: str) -> list[str]:
        files = {name: FileEntry(1, c * 64) for name, c in zip(graphs, checksums, strict=True)}
        package = SimpleNamespace(manifest=SimpleNamespace(files=files))
        entries = [EngineEntry(**{**TARGET_FIELDS, "graph": graph}) for graph in graphs]
        return [_content(package, entry) for entry in entries]  # type: ignore[arg-type]

    assert len({*contents("a", "b"), *contents("a", "c"), *contents("d", "b")}) == 6


def test_unverified_files_are_not_kept(root: Path, tmp_path: Path) -> None:  # noqa: F811
    ort = OrtOptions(load_cache=tmp_path)
    with pytest.raises(EngineError, match="checksums are not verified") as caught:
        load_package(root, verify_checksums=False, ort=ort)
    assert_one_line(caught.value)


def test_another_cpu_has_graphs_of_its_own(
    root: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits(root, load_cache=tmp_path / "cache")
    monkeypatch.setattr("specdec.engines.onnxruntime.load_cache._cpu", lambda: "another")
    logits(root, load_cache=str(tmp_path / "cache"))
    assert len(list((tmp_path / "cache").iterdir())) == 4


def test_a_failed_save_leaves_nothing(
    root: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half(graph: Path, name: str, out: Path) -> None:
        out.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ort_session, "_save", half)
    with pytest.raises(EngineError, match=r"cannot be written .No space left") as caught:
        logits(root, load_cache=tmp_path / "cache")
    assert_one_line(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_another_process_was_faster(
    root: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = logits(root, load_cache=tmp_path / "first")
    save, cache = ort_session._save, tmp_path / "cache"

    def overtaken(graph: Path, name: str, out: Path) -> None:
        save(graph, name, out)
        cache.mkdir(exist_ok=True)
        for entry in (tmp_path / "first").iterdir():
            if not (cache / entry.name).exists():
                entry.rename(cache / entry.name)

    monkeypatch.setattr(ort_session, "_save", overtaken)
    np.testing.assert_array_equal(logits(root, load_cache=cache), expected)
    assert len(list(cache.iterdir())) == 2


def test_a_cache_that_is_a_file(root: Path, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot be written"):
        logits(root, load_cache=tmp_path / "file")
    with pytest.raises(EngineError, match="load_cache is 3; allowed is None or a path"):
        OrtOptions(load_cache=3)  # type: ignore[arg-type]


def test_a_full_disk_is_said_before(
    root: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(EngineError, match=r"takes up to .* which has 10 B free"):
        logits(root, load_cache=tmp_path / "cache")
