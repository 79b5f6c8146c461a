"""Engines of every precision hold the values of the files they came from, and no other's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from specdec.export.checks.weights import compare_weights
from specdec.export.editing.model import save_graph
from specdec.export.engine_graphs import trace_graph, write_engine
from specdec.export.sources.accounting import Accounting
from specdec.export.sources.source import load_config, resolve_source
from specdec.export.sources.weights import account_for, load_model
from specdec.export.weights.recipes import CUDA_RECIPES, RECIPES, find_recipe
from tests.export.tiny_models import write_model

_ENGINES = [
    *((name, "onnxruntime", "cpu") for name in RECIPES),
    *((name, "onnxruntime", "cuda") for name in CUDA_RECIPES),
    *((name, "tensorrt-rtx", "cpu") for name in ("fp16", "int8", "int4")),
]


def accounted(folder: Path) -> Accounting:
    source = resolve_source(str(folder))
    found = account_for(source, load_config(source))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model with biases and tied embeddings, another one, and the first one's graph."""
    folder = tmp_path_factory.mktemp("weights")
    changes = {"attention_bias": True, "tie_word_embeddings": True}
    for name, seed in (("source", 0), ("other", 1)):
        write_model(folder / name, "llama", seed, **changes)
    (folder / "traced").mkdir()
    model = load_model(resolve_source(str(folder / "source")))
    plain = trace_graph(model, "in_place", 64, folder / "traced")
    return {"source": folder / "source", "other": folder / "other", "plain": plain}


@pytest.mark.parametrize(("name", "backend", "device"), _ENGINES)
def test_an_engine_holds_its_sources_values_and_no_others(
    folders: dict[str, Path], tmp_path: Path, name: str, backend: str, device: str
) -> None:
    graph = tmp_path / "model.onnx"
    write_engine(folders["plain"], graph, find_recipe(name, backend, device))
    own = compare_weights(graph, accounted(folders["source"]))
    assert own.different == own.not_found == ()
    assert own.num_parameters == 28
    assert own.num_values > 400
    other = compare_weights(graph, accounted(folders["other"]))
    assert len(other.different) == 28
    assert "28 parameters differ" in other.problems("target")[0]


def test_one_other_parameter_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    """The values of a packed projection alone, and of the smallest vector."""
    model = ir.load(folders["plain"])
    for value in model.graph.initializers.values():
        array = np.array(value.const_value.numpy())
        if value.name == "model.layers.1.self_attn.q_proj.weight.transposed.packed":
            array[:, 64:96] *= 1.01  # keys: after 64 columns of queries
        if value.name == "model.norm.weight":
            array += 0.01
        value.const_value = ir.tensor(array, name=value.name)
    save_graph(model, tmp_path / "model.onnx")
    found = compare_weights(tmp_path / "model.onnx", accounted(folders["source"]))
    assert set(found.different) == {"model.layers.1.self_attn.k_proj.weight", "model.norm.weight"}
