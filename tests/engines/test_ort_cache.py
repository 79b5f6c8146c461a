"""Graphs kept as optimized for this CPU: the same numbers, made once, never half written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specdec.engines import EngineError, OrtOptions, load_package, ort_session
from tests.engines.packages import assert_one_line
from tests.engines.test_load_package import TOKENS, root  # noqa: F401


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


def test_another_cpu_has_graphs_of_its_own(
    root: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits(root, load_cache=tmp_path / "cache")
    monkeypatch.setattr("specdec.engines.ort_cache._cpu", lambda: "another")
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
    from types import SimpleNamespace

    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(EngineError, match=r"takes up to .* which has 0\.0 GB free"):
        logits(root, load_cache=tmp_path / "cache")
