"""Every recipe on a small Llama (and others where they differ): sizes, graphs, quality."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

from specdec.engines.load import load_package
from specdec.export import ExportReport
from specdec.export.weights.recipes import RECIPES, find_recipe
from specdec.runtime import SpeculativeDecoder
from tests.export.exporting import export, read_model, round_to_fp16, speculative_text
from tests.export.tiny_models import MODELS, VOCABULARY, make_model, write_model, write_tokenizer

QUANTIZED = sorted(name for name, recipe in RECIPES.items() if recipe.method != "none")
LARGER = {"hidden_size": 128, "intermediate_size": 256}
Exporter = Callable[[str], ExportReport]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("llama") / "source", "llama", **LARGER)


@pytest.fixture(scope="module")
def exported(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Exporter:
    """The small Llama with an FP32 target and a draft of a recipe, exported once per recipe."""
    root = tmp_path_factory.mktemp("precisions")
    made: dict[str, ExportReport] = {}

    def get(recipe: str) -> ExportReport:
        if recipe not in made:
            made[recipe] = export(llama, root / recipe, draft_precision=recipe)
        return made[recipe]

    return get


def graph(report: ExportReport, engine: str = "draft") -> ir.Model:
    return ir.load(report.path / engine / "model.onnx")


def size(report: ExportReport, engine: str = "draft") -> int:
    return sum(path.stat().st_size for path in (report.path / engine).glob("*.data"))


def float_products(model: ir.Model) -> list[str]:
    """Matrix multiplications whose weights are still float."""
    found = []
    for node in model.graph:
        if node.op_type in ("MatMul", "Gemm") and node.inputs[1].is_initializer():
            assert node.inputs[1].const_value.dtype == ir.DataType.FLOAT
            found.append(node.inputs[1].name)
    return found


def lookups(model: ir.Model) -> list[ir.DataType]:
    """Precisions of the tables that `input_ids` picks rows of, scales left out."""
    return [
        node.inputs[0].const_value.dtype
        for node in model.graph
        if node.op_type == "Gather"
        and node.inputs[0].is_initializer()
        and node.inputs[0].const_value.shape[0] == 340
        and node.inputs[0].const_value.shape[-1] > 1
    ]


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_a_pair_of_each_recipe_runs_and_is_judged(exported: Exporter, recipe: str) -> None:
    report = exported(recipe)
    draft, checks = report.manifest.draft, report.manifest.checks
    assert draft is not None
    assert (draft.recipe, draft.storage) == (recipe, RECIPES[recipe].storage)
    agreement = checks["draft_vs_target"]["argmax_agreement"]
    overlap = checks["draft_vs_target"]["overlap"]
    divergence = checks["draft_vs_target"]["kl_divergence"]
    assert {"fp32": 0.999, "fp16": 0.98, "int8": 0.9, "int4": 0.5}[draft.storage] < overlap <= 1.0
    assert {"fp32": 1e-6, "fp16": 1e-3, "int8": 0.05, "int4": 0.5}[draft.storage] > divergence
    assert agreement >= {"fp32": 1.0, "fp16": 0.95, "int8": 0.85, "int4": 0.4}[draft.storage]
    assert checks["greedy_pair"]["matching"] == checks["greedy_pair"]["tokens"]
    with SpeculativeDecoder.load(report.path, num_threads=1) as decoder:
        texts = [speculative_text(decoder, [5, 60, 200], 32, k) for k in (0, 1, 4)]
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_short_names_choose_a_recipe_of_their_kind(name: str) -> None:
    assert find_recipe(name).storage == name


def test_sizes_shrink_with_the_bits(exported: Exporter) -> None:
    fp32 = size(exported("fp32"))
    ratio = {name: size(exported(name)) / fp32 for name in RECIPES}
    assert 0.5 <= ratio["fp16"] < 0.56
    for name, recipe in RECIPES.items():
        if recipe.method != "none":
            low, high = {8: (0.25, 0.40), 4: (0.12, 0.32)}[recipe.bits]
            assert low < ratio[name] < high, name
    assert ratio["int4-kquant"] < ratio["int8-blocks"]


@pytest.mark.parametrize("recipe", QUANTIZED)
def test_every_product_and_the_embedding_are_quantized(exported: Exporter, recipe: str) -> None:
    model, wanted = graph(exported(recipe)), RECIPES[recipe]
    assert float_products(model) == []
    assert lookups(model) == [ir.DataType.INT8]
    kinds = Counter(node.op_type for node in model.graph)
    if wanted.method == "dynamic":
        assert kinds["MatMulInteger"] > 0
        return
    products = [node for node in model.graph if node.op_type == "MatMulNBits"]
    head = next(n for n in products if n.attributes.get_int("N") == 340)
    assert head.attributes.get_int("bits") == wanted.head_bits
    body = Counter(n.attributes.get_int("bits") for n in products if n is not head)
    assert body[wanted.bits] >= (len(products) - 1 if not wanted.mixed else 1)


@pytest.mark.parametrize("name", ["gpt2", "granite", "gpt_neox"])
def test_projections_of_every_form_are_quantized(name: str, tmp_path: Path) -> None:
    """`Conv1D` (a Gemm), a head with a scale behind it, and packed projections with biases."""
    report = export(write_model(tmp_path / "source", name), tmp_path / "package", "self")
    assert float_products(graph(report)) == []
    int4 = export(tmp_path / "source", tmp_path / "four", draft_precision="int4-kquant")
    model = graph(int4)
    assert float_products(model) == []
    products = [node for node in model.graph if node.op_type == "MatMulNBits"]
    bits = Counter(node.attributes.get_int("bits") for node in products)
    assert bits == {4: len(products) - 1, 8: 1}


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_sizes_that_no_block_divides(recipe: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.getbasetemp() / "odd"
    source = root / "source"
    if not source.is_dir():
        write_model(source, "llama", hidden_size=72, intermediate_size=100)
    report = export(source, root / recipe, draft_precision=recipe)
    assert report.manifest.checks["draft_vs_target"]["overlap"] > 0.4
    if recipe in QUANTIZED:
        assert float_products(graph(report)) == []


def test_an_fp16_target_is_the_model_with_rounded_matrices(llama: Path, tmp_path: Path) -> None:
    report = export(llama, tmp_path / "package", "none", target_precision="fp16")
    target = report.manifest.target
    assert (target.storage, target.compute) == ("fp16", "fp32")
    model = read_model(llama)
    ids = np.random.default_rng(1).integers(2, VOCABULARY, (1, 40))
    with load_package(report.path, num_threads=1) as package, torch.no_grad():
        found = package.target.forward(ids, 40)
        exact = model(input_ids=torch.from_numpy(ids)).logits.numpy()
        rounded = round_to_fp16(model)(input_ids=torch.from_numpy(ids)).logits.numpy()
    assert np.abs(found - rounded).max() < 2e-5
    assert np.abs(found - exact).max() > 2e-4, "the rounding shows, so the check can fail"


def test_a_weight_beyond_fp16_stays_fp32_with_a_note(tmp_path: Path) -> None:
    model = make_model("llama", **LARGER)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 5] = 70_000.0
    model.save_pretrained(tmp_path / "source")
    write_tokenizer(tmp_path / "source")
    report = export(tmp_path / "source", tmp_path / "package", "none", target_precision="fp16")
    (note,) = report.manifest.checks["notes"]
    assert note.startswith("1 weights of the target stay fp32: their values exceed FP16's range (")
    assert "up_proj" in note
    assert report.manifest.checks["target_vs_original"]["argmax_agreement"] > 0.95


def test_an_untied_head_and_a_tied_one_are_both_stored_whole(tmp_path: Path) -> None:
    found = {}
    for name in ("llama", "llama-tied"):
        assert name in MODELS
        report = export(write_model(tmp_path / name, name, **LARGER), tmp_path / f"{name}-package")
        found[name] = report.manifest.checks["target_vs_original"]["max_logit_difference"]
    assert max(found.values()) < 1e-4
