"""A draft that is another model: its own cache, geometry, padding and context."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specdec.runtime import SpeculativeDecoder
from tests.export.exporting import export, read_model, reference_text, speculative_text
from tests.export.tiny_models import VOCABULARY, make_model, write_model, write_tokenizer

LARGE = {"num_hidden_layers": 3, "hidden_size": 128, "num_attention_heads": 8}
PROMPTS = [np.random.default_rng(n).integers(2, VOCABULARY, n).tolist() for n in (1, 12, 70)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Targets and drafts of one tokenizer."""
    root = tmp_path_factory.mktemp("pairs")
    write_model(root / "target", "llama", vocab_size=332, **LARGE)
    write_model(root / "padded-target", "llama", vocab_size=384, **LARGE)
    write_model(root / "draft", "qwen2", seed=1, vocab_size=340)
    write_model(root / "short-draft", "llama", seed=1, max_position_embeddings=48)
    # As long as the text of the checks, but for a few tokens.
    write_model(root / "almost-short-draft", "llama", seed=1, max_position_embeddings=66)
    write_model(root / "concatenated-draft", "gptj", seed=1)
    write_twin(root / "twin-draft", root / "target")
    return root


def write_twin(folder: Path, target: Path) -> None:
    """A draft that agrees with the target now and then: its first two layers."""
    large, small = read_model(target), make_model("llama", vocab_size=332, **LARGE)
    del small.model.layers[2:]
    small.config.num_hidden_layers = 2
    kept = {k: v for k, v in large.state_dict().items() if ".layers.2." not in k}
    small.load_state_dict(kept)
    small.save_pretrained(folder)
    write_tokenizer(folder)


@pytest.fixture(
    scope="module",
    params=[
        ("target", "draft"),
        ("padded-target", "draft"),
        ("target", "twin-draft"),
        ("padded-target", "short-draft"),
        ("target", "almost-short-draft"),
        ("target", "concatenated-draft"),
    ],
    ids="-".join,
)
def pair(
    request: pytest.FixtureRequest, sources: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Any, Any, SpeculativeDecoder]]:
    """(name of the draft, manifest, torch target, decoder) of an exported pair."""
    target, draft = request.param
    out = tmp_path_factory.mktemp("pair") / "package"
    report = export(sources / target, out, sources / draft)
    model = read_model(sources / target)
    with SpeculativeDecoder.load(out, num_threads=1) as decoder:
        yield draft, report.manifest, model, decoder


def test_the_text_is_the_targets(pair: tuple[str, Any, Any, SpeculativeDecoder]) -> None:
    _, _, model, decoder = pair
    for prompt in PROMPTS:
        expected = reference_text(model, prompt, 40)
        assert speculative_text(decoder, prompt, 40, 0) == expected
        assert speculative_text(decoder, prompt, 40, 3) == expected


def test_the_entries_describe_both_models(
    pair: tuple[str, Any, Any, SpeculativeDecoder],
) -> None:
    name, manifest, model, _ = pair
    target, draft = manifest.target, manifest.draft
    assert target.vocab_size == draft.vocab_size == VOCABULARY
    assert target.logits_width == model.config.vocab_size
    assert draft.logits_width == (332 if name == "twin-draft" else 340)
    assert (target.num_layers, target.head_size) == (3, 16)
    assert draft.num_layers == 2
    assert not draft.shares_target_cache
    assert draft.max_length == {"short-draft": 48, "almost-short-draft": 66}.get(name, 256)
    assert draft.layout == ("concatenated" if name == "concatenated-draft" else "in_place")
    assert manifest.checks["problems"] == []
    assert manifest.checks["draft_vs_original"]["argmax_agreement"] > 0.8
    assert manifest.checks["draft_vs_target"]["argmax_agreement"] < 0.9


def test_drafting_stops_at_the_drafts_context(
    pair: tuple[str, Any, Any, SpeculativeDecoder],
) -> None:
    """Text goes on past the context of the short drafts, and is still the target's."""
    _, _, model, decoder = pair
    prompt = PROMPTS[1]
    expected = reference_text(model, prompt, 200)
    assert speculative_text(decoder, prompt, 200, 3) == expected


def test_the_prompt_may_exceed_the_drafts_context(sources: Path, tmp_path: Path) -> None:
    report = export(sources / "target", tmp_path / "package", sources / "short-draft")
    with SpeculativeDecoder.load(report.path, num_threads=1) as decoder:
        expected = reference_text(read_model(sources / "target"), PROMPTS[2], 20)
        assert len(PROMPTS[2]) > 48
        assert speculative_text(decoder, PROMPTS[2], 20, 3) == expected


def test_max_length_limits_both_caches(sources: Path, tmp_path: Path) -> None:
    out = tmp_path / "package"
    manifest = export(sources / "target", out, sources / "draft", max_length=32).manifest
    assert manifest.draft is not None
    assert manifest.target.max_length == manifest.draft.max_length == 32
