"""The checks before a package is called good: engines that are wrong on purpose do not pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import specdec.export.writing as writing
from specdec.engines.load import load_package
from specdec.engines.onnxruntime.engine import OrtEngine
from specdec.export import ExportError
from specdec.export.editing.model import save_graph
from specdec.export.errors import ExportCheckError
from tests.export.exporting import export
from tests.export.tiny_models import write_model

Change = Callable[[ir.Model], None]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("llama") / "source", "llama")


def alter_engines(monkeypatch: pytest.MonkeyPatch, engine: str, change: Change) -> None:
    """Let the export write an engine that `change` has been applied to."""
    write = writing.write_engine

    def altered(plain: Path, out: Path, recipe: Any, scales: Any) -> list[str]:
        kept = write(plain, out, recipe, scales)
        if out.parent.name == engine:
            model = ir.load(out)
            for value in model.graph.initializers.values():  # before its file is replaced
                value.const_value = ir.tensor(np.array(value.const_value.numpy()), name=value.name)
            change(model)
            save_graph(model, out)
        return kept

    monkeypatch.setattr(writing, "write_engine", altered)


def scale_weights(factor: float, name: str) -> Change:
    """Multiply the float weights whose name holds `name`."""

    def change(model: ir.Model) -> None:
        weights = [v for v in model.graph.initializers.values() if name in v.name]
        weights = [v for v in weights if v.const_value.dtype == ir.DataType.FLOAT]
        assert weights
        for value in weights:
            array = value.const_value.numpy() * np.float32(factor)
            value.const_value = ir.tensor(array.astype(np.float32), name=value.name)

    return change


def forget_window(model: ir.Model) -> None:
    """Let every row see the last two positions only."""
    for node in model.graph:
        if node.op_type == "GroupQueryAttention":
            node.attributes["local_window_size"] = ir.AttrInt64("local_window_size", 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (scale_weights(3.0, "down_proj"), "the target engine differs from the original weights"),
        (forget_window, "the target engine differs from the original weights"),
        (scale_weights(np.nan, "norm"), "logits that are not finite"),
        (scale_weights(1e38, "down_proj"), "logits that are not finite"),
    ],
)
def test_a_target_that_computes_something_else_is_not_written(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    words: str,
) -> None:
    alter_engines(monkeypatch, "target", change)
    with pytest.raises(ExportCheckError, match=words) as caught:
        export(source, tmp_path / "package")
    assert "--force" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_force_writes_it_with_its_problems(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_engines(monkeypatch, "target", scale_weights(3.0, "down_proj"))
    report = export(source, tmp_path / "package", force=True)
    problems = report.manifest.checks["problems"]
    assert len(problems) == 2
    assert "the target engine holds other weights than its source: 2 parameters" in problems[0]
    assert "model.layers.0.mlp.down_proj.weight" in problems[0]
    assert "differs from the original weights" in problems[1]
    assert any(problems[0] in line for line in report.summary_lines())
    with load_package(report.path, num_threads=1) as loaded:
        assert list(loaded.manifest.checks["problems"]) == problems


def test_a_cache_that_is_cut_wrongly_is_noticed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truncate = OrtEngine.truncate

    def one_too_many(self: OrtEngine, length: int) -> None:
        truncate(self, max(0, length - 1))

    monkeypatch.setattr(OrtEngine, "truncate", one_too_many)
    with pytest.raises(ExportCheckError, match="depends on how its tokens are fed") as caught:
        export(source, tmp_path / "package")
    assert "after_truncation" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_draft_that_knows_nothing_is_safe_and_measured(source: Path, tmp_path: Path) -> None:
    """Any draft is lossless: a bad one is no reason to refuse, but the figures show it."""
    stranger = write_model(tmp_path / "stranger", "llama", seed=9)
    report = export(source, tmp_path / "package", stranger, draft_precision="fp32")
    checks = report.manifest.checks
    assert checks["problems"] == []
    assert checks["draft_vs_target"]["argmax_agreement"] < 0.5
    assert checks["greedy_pair"]["matching"] == checks["greedy_pair"]["tokens"]


def test_a_self_draft_of_other_weights_is_not_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_engines(monkeypatch, "draft", scale_weights(-1.0, "norm"))
    with pytest.raises(ExportCheckError, match="the draft engine holds other weights") as caught:
        export(source, tmp_path / "package", draft_precision="fp32")
    assert "5 parameters differ" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_draft_of_nonsense_numbers_is_not_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_engines(monkeypatch, "draft", scale_weights(np.nan, "norm"))
    with pytest.raises(ExportCheckError, match="the draft engine produces logits"):
        export(source, tmp_path / "package", draft_precision="fp32")
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_loses_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSeek's mixture as transformers writes it: only the experts a text needs are traced."""
    from contextlib import nullcontext

    monkeypatch.setattr("specdec.export.graphs.tracing.every_expert", lambda _: nullcontext())
    source = write_model(tmp_path / "source", "deepseek_v3", n_routed_experts=64)
    with pytest.raises(ExportError, match=r"lost \d+ of its weights"):
        export(source, tmp_path / "package")
    assert list(tmp_path.iterdir()) == [source]
