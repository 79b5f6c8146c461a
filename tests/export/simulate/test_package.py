"""Random-weight packages of a given size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("optimum.exporters.onnx", reason="exports for real")

from specdec.engines import load_package
from specdec.engines.native.library import native_library
from specdec.export import ExportError, SilentProgress
from specdec.export.simulate.package import SimulatedPair, write_simulated_package
from specdec.export.simulate.shapes import disk_needed, shape_of
from specdec.export.weights.recipes import find_recipe


@pytest.mark.parametrize("size", ["1M", "135M", "0.5B", "1.5B", "7B", "20b"])
def test_a_shape_has_the_size_asked_for(size: str) -> None:
    shape = shape_of(size)
    head = shape.hidden // shape.heads
    attention = 2 * shape.hidden * (shape.hidden + shape.kv_heads * head)
    layer = attention + 3 * shape.hidden * shape.feed_forward
    weights = shape.layers * layer + shape.vocab * shape.hidden
    assert abs(weights - shape.weights) <= layer
    assert shape.heads % shape.kv_heads == 0


@pytest.mark.parametrize("size", ["", "big", "1.5", "100K", "30B", "-1B", "0M"])
def test_sizes_that_are_refused(size: str) -> None:
    with pytest.raises(ExportError, match="allowed is 1M"):
        shape_of(size)


@pytest.mark.parametrize("draft", ["self", "1M"])
def test_a_package_of_that_size_runs(tmp_path: Path, draft: str) -> None:
    pair = SimulatedPair(target="2M", draft=draft, max_length=64)
    write_simulated_package(pair, tmp_path, SilentProgress())
    with load_package(tmp_path, num_threads=1) as package:
        entry = package.manifest.target
        assert package.draft_shares_cache == (draft == "self")
        assert package.draft is not None
        assert package.draft.info.vocab_size == entry.vocab_size == 4096
        read = package.manifest.checks["weights_read"]
    # Native operators read FP16, others FP32 copies; the tied embedding is read as the head.
    size = 4 if native_library().path is None else 2
    assert read["target"] == pytest.approx(size * 2e6, rel=0.1)
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_files_hold_two_layers_and_engines_all_of_them(tmp_path: Path, device: str) -> None:
    import onnx_ir as ir

    pair = SimulatedPair(target="4M", max_length=64, draft_precision="int4", device=device)
    write_simulated_package(pair, tmp_path, SilentProgress())
    shape = shape_of("4M")
    assert shape.layers > 10
    graph = ir.load(tmp_path / "target" / "model.onnx").graph
    downs = [v for name, v in graph.initializers.items() if ".down_proj." in name]
    assert len(downs) == shape.layers
    assert len({value.name for value in downs}) == shape.layers
    assert len({value.const_value.offset for value in downs}) == 2
    size = (tmp_path / "target" / "model.onnx.data").stat().st_size
    table = shape.vocab * shape.hidden  # on a GPU stored narrow and wide
    stored = (1 if device == "cpu" else 2) * table + 2 * (shape.weights - table) / shape.layers
    # Rotary tables, norms and alignment come on top of the FP16 weights.
    assert 1.95 * stored <= size < 2.3 * stored + 300_000
    with load_package(tmp_path, num_threads=1) as package:
        assert package.manifest.target.kv_dtype == {"cpu": "float32", "cuda": "float16"}[device]
        assert package.draft_shares_cache
        logits = package.target.forward(np.array([[3, 1, 4]]), 1)
        assert np.isfinite(logits).all()
        assert np.ptp(logits) > 0


@pytest.mark.parametrize(
    ("size", "gigabytes"), [("1.5B", 0.67 + 0.42), ("7B", 2.05 + 1.98)], ids=["1.5B", "7B"]
)
def test_disk_is_asked_for_what_is_written(size: str, gigabytes: float) -> None:
    """FP16 weights of two layers and the table, and their float graph while it is rewritten."""
    models, recipes = {("target",): shape_of(size)}, {"target": find_recipe("fp16")}
    assert disk_needed(models, recipes) / 1e9 == pytest.approx(gigabytes, abs=0.03)


def test_every_engine_asks_for_its_disk() -> None:
    target, draft = shape_of("1.5B"), replace(shape_of("0.5B"), vocab=151936)
    recipes = {"target": find_recipe("fp16"), "draft": find_recipe("int8")}
    alone = disk_needed({("target",): target}, recipes)
    table, layers = 151936 + 4093, 2 * 14_909_440
    pair = disk_needed({("target",): target, ("draft",): draft}, recipes) - alone
    assert pair == pytest.approx(1.25 * layers + (1 + 1.25) * table * 896, rel=1e-3)
    itself = disk_needed({("target", "draft"): target}, recipes) - alone
    assert itself == pytest.approx(1.25 * 93_585_408 + (1 + 1.25) * table * 1536, rel=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8", "int4", "int8-dynamic"])
def test_the_estimate_of_disk_is_that_of_the_files(tmp_path: Path, precision: str) -> None:
    pair = SimulatedPair("60M", "none", target_precision=precision, max_length=64)
    most = 0

    class Watching(SilentProgress):
        @contextmanager
        def step(self, name: str, total: float | None = None) -> Iterator[SilentProgress]:
            nonlocal most
            yield self
            most = max(most, sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()))

    write_simulated_package(pair, tmp_path, Watching())
    models, recipes = {("target",): shape_of("60M")}, {"target": find_recipe(precision)}
    needed = disk_needed(models, recipes)
    assert most <= needed < 1.3 * most + 20e6


def test_devices_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"device 'cuda:0' .* allowed are cpu, cuda"):
        write_simulated_package(
            SimulatedPair("1M", "none", device="cuda:0"), tmp_path, SilentProgress()
        )
    assert list(tmp_path.iterdir()) == []


def test_too_little_disk_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    class Usage:
        free = 1_000_000

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage())
    with pytest.raises(ExportError, match="free some or set TMPDIR"):
        write_simulated_package(SimulatedPair("2M"), tmp_path, SilentProgress())
