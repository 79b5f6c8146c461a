"""Loading: a package of two tiny in-place graphs, run by ONNX Runtime itself."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specdec.engines import Device, Engine, EngineError, read_package
from specdec.engines.load import LoadedPackage, load_package
from specdec.engines.onnxruntime import load as ort_load
from tests.engines.packages import (
    DRAFT_GRAPH,
    TARGET_GRAPH,
    assert_one_line,
    edit_manifest,
    relist,
    write_package,
)

onnx = pytest.importorskip("onnx", reason="builds its graphs with the onnx package")

VOCAB, LAYERS, HEADS, KV_HEADS, HEAD_SIZE, CAPACITY = 12, 1, 2, 1, 8, 32
GEOMETRY = {
    "vocab_size": VOCAB,
    "logits_width": VOCAB,
    "max_length": CAPACITY,
    "num_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_kv_heads": KV_HEADS,
    "head_size": HEAD_SIZE,
    "prefill_chunk": 8,
}
TOKENS = np.array([[3, 1, 4, 1]], np.int64)


def tiny_graph(seed: int) -> Any:
    """Return embed -> one cached attention node -> output head, with random weights."""
    helper, rng = onnx.helper, np.random.default_rng(seed)
    floats, int64, int32 = (getattr(onnx.TensorProto, t) for t in ("FLOAT", "INT64", "INT32"))
    widths = {"q": HEADS * HEAD_SIZE, "k": KV_HEADS * HEAD_SIZE, "v": KV_HEADS * HEAD_SIZE}
    weights = {name: rng.standard_normal((VOCAB, width)) for name, width in widths.items()}
    weights["head"] = rng.standard_normal((widths["q"], VOCAB))
    cache = [1, KV_HEADS, CAPACITY, HEAD_SIZE]
    values = helper.make_tensor_value_info
    node = helper.make_node
    attention = ["q_rows", "k_rows", "v_rows", "past_key_values.0.key", "past_key_values.0.value"]
    graph = helper.make_graph(
        [
            *(node("Gather", [name, "input_ids"], [f"{name}_rows"]) for name in widths),
            node(
                "GroupQueryAttention",
                [*attention, "seqlens_k", "total_sequence_length"],
                ["attended", "present.0.key", "present.0.value"],
                domain="com.microsoft",
                num_heads=HEADS,
                kv_num_heads=KV_HEADS,
            ),
            node("Gather", ["attended", "logit_rows"], ["scored"], axis=1),
            node("MatMul", ["scored", "head"], ["logits"]),
        ],
        "tiny",
        [
            values("input_ids", int64, [1, "rows"]),
            values("seqlens_k", int32, [1]),
            values("total_sequence_length", int32, [1]),
            values("logit_rows", int64, ["scores"]),
            *(values(f"past_key_values.0.{part}", floats, cache) for part in ("key", "value")),
        ],
        [
            values("logits", floats, [1, "scores", VOCAB]),
            *(values(f"present.0.{part}", floats, cache) for part in ("key", "value")),
        ],
        [
            onnx.numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in weights.items()
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A pair whose target keeps its weights in external data, as large exports do."""
    root = write_package(tmp_path / "package")
    (root / "target/weights.bin").unlink()
    onnx.save_model(
        tiny_graph(1),
        str(root / TARGET_GRAPH),
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=0,
    )
    onnx.save_model(tiny_graph(2), str(root / DRAFT_GRAPH))
    relist_tiny(root)
    return root


def relist_tiny(root: Path, **draft: Any) -> None:
    relist(root)

    def edit(tree: dict[str, Any]) -> None:
        tree["engines"]["target"].update(GEOMETRY)
        tree["engines"]["draft"].update(GEOMETRY, **draft)

    edit_manifest(root, edit)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Engine]]:
    """Every engine that loading builds, by name."""
    engines: dict[str, Engine] = {}
    real = ort_load.load_ort_engine

    def record(*args: Any, **options: Any) -> Engine:
        engines[options["name"]] = real(*args, **options)
        return engines[options["name"]]

    monkeypatch.setattr(ort_load, "load_ort_engine", record)
    yield engines
    for engine in engines.values():
        engine.close()


def assert_closed(engine: Engine) -> None:
    with pytest.raises(EngineError, match="closed"):
        engine.forward(TOKENS, 1)


def test_a_pair_is_loaded_and_shares_one_cache(root: Path) -> None:
    with load_package(root, num_threads=1) as package:
        assert package.draft is not None
        assert (package.target.info.name, package.draft.info.name) == ("target", "draft")
        assert package.target.info.device == package.draft.info.device == "cpu"
        assert package.draft_shares_cache
        logits = package.target.forward(TOKENS, 2)
        assert logits.shape == (1, 2, VOCAB)
        assert package.draft.length == TOKENS.size
        assert package.path == root.resolve()
        assert package.manifest.target.vocab_size == VOCAB
        assert package.tokenizer_path == root.resolve() / "tokenizer.json"
        assert package.chat_template is not None
        assert package.special_tokens["bos_token"] == "<s>"


def test_a_draft_with_its_own_cache(root: Path) -> None:
    relist_tiny(root, shares_target_cache=False)
    with load_package(root, num_threads=1) as package:
        assert package.draft is not None
        assert not package.draft_shares_cache
        package.target.forward(TOKENS, 0)
        assert package.draft.length == 0


def test_the_target_alone(root: Path, built: dict[str, Engine]) -> None:
    with load_package(root, num_threads=1, load_draft=False) as package:
        assert package.draft is None
        assert not package.draft_shares_cache
        assert list(built) == ["target"]


def test_a_package_without_a_draft(root: Path) -> None:
    edit_manifest(root, lambda tree: tree["engines"].pop("draft"))
    with load_package(root, num_threads=1) as package:
        assert package.draft is None


def test_leaving_closes_both_engines(root: Path, built: dict[str, Engine]) -> None:
    with load_package(root, num_threads=1) as package:
        pass
    for name in ("target", "draft"):
        assert_closed(built[name])
    package.close()


def test_a_draft_that_does_not_load_closes_the_target(root: Path, built: dict[str, Engine]) -> None:
    graph = tiny_graph(2)
    graph.graph.node[0].op_type = "TopK"
    onnx.save_model(graph, str(root / DRAFT_GRAPH))
    relist_tiny(root)
    with pytest.raises(EngineError, match="draft engine") as caught:
        load_package(root, num_threads=1)
    assert_one_line(caught.value)
    assert list(built) == ["target"]
    assert_closed(built["target"])


def test_the_target_is_closed_even_if_the_draft_cannot_be(
    root: Path, built: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = load_package(root, num_threads=1)

    def fail() -> None:
        raise RuntimeError("driver lost")

    with monkeypatch.context() as patch:
        patch.setattr(built["draft"], "close", fail)
        with pytest.raises(RuntimeError, match="driver lost"):
            package.close()
    assert_closed(built["target"])


def test_a_graph_that_onnxruntime_refuses(root: Path) -> None:
    (root / TARGET_GRAPH).write_bytes(b"\x08\x08")
    relist_tiny(root)
    with pytest.raises(EngineError, match="target engine") as caught:
        load_package(root, num_threads=1)
    assert_one_line(caught.value)


def test_too_few_threads(root: Path) -> None:
    with pytest.raises(EngineError, match="num_threads is 0; allowed is"):
        load_package(root, num_threads=0)


def test_loading_leaves_the_package_as_it_was(root: Path) -> None:
    before = json.loads((root / "specdec.json").read_text())
    package: LoadedPackage = load_package(root, num_threads=1)
    package.close()
    relist_tiny(root)
    assert json.loads((root / "specdec.json").read_text()) == before


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("num_kv_heads", 2, "[batch, 2, capacity, 8]"),
        ("head_size", 16, "[batch, 1, capacity, 16]"),
        ("kv_dtype", "float16", "tensor(float16)"),
        ("num_layers", 2, "lacks past_key_values.1.key, past_key_values.1.value"),
        ("logits_width", 16, "has 12 logits a row"),
    ],
)
def test_a_graph_that_is_not_what_its_entry_says(
    root: Path, field: str, value: Any, words: str
) -> None:
    def edit(tree: dict[str, Any]) -> None:
        tree["engines"].pop("draft")
        tree["engines"]["target"][field] = value

    edit_manifest(root, edit)
    with pytest.raises(EngineError) as caught:
        load_package(root, num_threads=1)
    assert words in assert_one_line(caught.value)


def test_a_lying_draft_never_gets_the_targets_buffers(root: Path) -> None:
    graph = tiny_graph(2)
    for value in [*graph.graph.input, *graph.graph.output]:
        if "key" in value.name or "value" in value.name:
            value.type.tensor_type.shape.dim[3].dim_value = 16
    onnx.save_model(graph, str(root / DRAFT_GRAPH))
    relist_tiny(root)
    with pytest.raises(EngineError, match="draft"):
        load_package(root, num_threads=1)


def test_a_cache_that_no_memory_can_hold(root: Path) -> None:
    entry = read_package(root).manifest.target
    size = {"max_length": 2**24, "num_attention_heads": 2**16, "num_kv_heads": 2**16}
    huge = dataclasses.replace(entry, **size, head_size=2**16)
    with pytest.raises(EngineError) as caught:
        ort_load._allocate(huge, "target", Device("cpu"), 1)
    assert "smaller --max-length" in assert_one_line(caught.value)
