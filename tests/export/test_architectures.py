"""Every architecture through the real export: right text, and the layout the documentation says.

`docs/architectures.md` is the expectation: its table names each model of `MODELS` with the cache
layout, who rotates, and the attention windows; a row that is missing, or not true, fails here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from specdec.engines.load import load_package
from specdec.export import ExportReport
from specdec.runtime import SpeculativeDecoder
from tests.export.exporting import (
    attention_nodes,
    export,
    read_model,
    reference_text,
    speculative_text,
    top_two_margin,
)
from tests.export.tiny_models import CONTEXT, MODELS, VOCABULARY, write_model

DOCUMENT = Path(__file__).parents[2] / "docs" / "architectures.md"
PROMPT_LENGTHS = (3, 20, 90)
"""Tokens: shorter than every window, past them, and more than one pass of a concatenated cache."""
NEW_TOKENS = 24
NOISE = 1e-4
"""Rounding of float32 logits of these models; texts may part where two logits are nearer."""


def documented() -> dict[str, list[str]]:
    """The rows of the table: model -> [cache, rotation, windows]."""
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", DOCUMENT.read_text(encoding="utf-8"), re.M)
    return {name: [cell.strip() for cell in cells.split("|")][:3] for name, cells in rows}


@dataclass
class Exported:
    """A tiny model, its package, and the package loaded."""

    name: str
    report: ExportReport
    model: Any
    decoder: SpeculativeDecoder

    @property
    def nodes(self) -> list[ir.Node]:
        return attention_nodes(self.report.path / "target" / "model.onnx")


@pytest.fixture(scope="module", params=sorted(MODELS))
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exported]:
    """Each model exported once: FP32 target, INT8 self-draft."""
    root = tmp_path_factory.mktemp("architecture")
    source = write_model(root / "source", request.param)
    report = export(source, root / "package")
    model = read_model(source)
    with SpeculativeDecoder.load(report.path, num_threads=1) as decoder:
        yield Exported(request.param, report, model, decoder)
    shutil.rmtree(root)


def test_every_model_has_a_row() -> None:
    assert sorted(documented()) == sorted(MODELS)


def test_greedy_text_is_that_of_transformers(exported: Exported) -> None:
    model, limit = exported.model, exported.report.manifest.target.max_length
    distinct = set()
    for length in PROMPT_LENGTHS:
        if length + NEW_TOKENS > limit:
            continue
        prompt = np.random.default_rng(length).integers(2, VOCABULARY, length).tolist()
        expected = reference_text(model, prompt, NEW_TOKENS)
        distinct |= set(expected)
        for num_draft_tokens in (0, 4):
            text = speculative_text(exported.decoder, prompt, NEW_TOKENS, num_draft_tokens)
            same = [a == b for a, b in zip(text, expected, strict=True)]
            if not all(same):
                parting = [*prompt, *expected[: same.index(False)]]
                assert top_two_margin(model, parting) < NOISE, (length, num_draft_tokens)
    assert len(distinct) > 8, "a text of few tokens proves little"


def test_checks_find_the_original_logits(exported: Exported) -> None:
    checks = exported.report.manifest.checks
    assert checks["problems"] == []
    assert checks["target_vs_original"]["max_logit_difference"] < NOISE
    assert max(checks["target_width_parity"].values()) < NOISE
    assert checks["draft_vs_target"]["argmax_agreement"] > 0.8
    assert checks["greedy_pair"]["tokens"] == checks["greedy_pair"]["matching"] == 32


def test_cache_rotation_and_windows_are_the_documented_ones(exported: Exported) -> None:
    target, draft = exported.report.manifest.target, exported.report.manifest.draft
    nodes = exported.nodes
    found = [target.layout.replace("_", "-"), "-", "-"]
    if nodes:
        found[1] = "node" if all("do_rotary" in node.attributes for node in nodes) else "graph"
        windows = [node.attributes.get_int("local_window_size", 0) for node in nodes]
        found[2] = ", ".join(str(w) if w else "all" for w in windows) if any(windows) else "all"
    assert documented()[exported.name] == found
    assert (target.layout == "in_place") == (len(nodes) == target.num_layers)
    assert draft is not None
    assert draft.shares_target_cache == (target.layout == "in_place")
    notes = " ".join(exported.report.manifest.checks["notes"])
    assert ("concatenated cache" in notes) == (target.layout == "concatenated")


def test_rows_fed_n_at_a_time_give_the_logits_of_one_pass(exported: Exported) -> None:
    ids = np.random.default_rng(5).integers(2, VOCABULARY, (1, 33))
    with load_package(exported.report.path, num_threads=1) as package:
        engine = package.target
        whole = engine.forward(ids, 33).copy()
        for rows in (1, 2, 5, 16):
            engine.truncate(0)
            parts = [
                engine.forward(ids[:, i : i + rows], min(rows, 33 - i)).copy()
                for i in range(0, 33, rows)
            ]
            assert np.abs(np.concatenate(parts, axis=1) - whole).max() < NOISE, rows
        engine.truncate(7)
        assert np.abs(engine.forward(ids[:, 7:], 1) - whole[:, -1:]).max() < NOISE


def test_length_dependent_rotation_limits_the_context(exported: Exported) -> None:
    notes = [n for n in exported.report.manifest.checks["notes"] if "original context" in n]
    if exported.name == "phi3-longrope":
        assert exported.report.manifest.target.max_length == 64
        assert len(notes) == 1
        return
    unlimited = exported.name.startswith(("bloom", "falcon"))
    assert exported.report.manifest.target.max_length == CONTEXT or unlimited
    assert notes == []
