"""`--draft-precision auto` and `--require-speedup`, through the real export."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("optimum.exporters.onnx", reason="exports for real")

from specdec.engines import load_package
from specdec.export import ExportError, ExportOptions, export_package
from specdec.export.auto import CANDIDATES
from specdec.export.weights.recipes import RECIPES
from specdec.runtime import SamplingParams, SpeculativeDecoder


@pytest.fixture(scope="module")
def automatic(tiny_sources: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("auto") / "package"
    options = ExportOptions(
        target=str(tiny_sources[0]), draft="self", out=out, draft_precision="auto", num_threads=1
    )
    report = export_package(options)
    assert report.measured is not None
    return out


def test_every_recipe_is_tried_and_the_best_kept(automatic: Path) -> None:
    with load_package(automatic, num_threads=1) as package:
        manifest = package.manifest
        assert package.draft_shares_cache
    candidates = manifest.checks["report"]["candidates"]
    assert {c["recipe"] for c in candidates} == {recipe.name for recipe in CANDIDATES}
    methods = {RECIPES[c["recipe"]].method for c in candidates if c["problem"] is None}
    assert methods == {"dynamic", "rtn", "kquant", "hqq"}
    speedups = [c["speedup"] for c in candidates]
    assert speedups == sorted(speedups, reverse=True)
    assert manifest.draft is not None
    winner = RECIPES[candidates[0]["recipe"]]
    assert manifest.draft.recipe == winner.name
    assert (manifest.draft.storage, manifest.draft.compute) == (winner.storage, winner.compute)
    size = sum(e.size for name, e in manifest.files.items() if name.startswith("draft/"))
    assert size == candidates[0]["bytes"]
    assert manifest.source["draft_precision"] == "auto"


def test_nothing_of_the_others_is_left(automatic: Path) -> None:
    folders = {path.name for path in automatic.iterdir() if path.is_dir()}
    assert folders == {"target", "draft"}
    with SpeculativeDecoder.load(automatic, num_threads=1) as decoder:
        texts = [
            decoder.generate("hi", SamplingParams(max_new_tokens=12, num_draft_tokens=k)).token_ids
            for k in (0, 4)
        ]
    assert texts[0] == texts[1]


def test_a_recipe_that_cannot_be_built_is_named_and_skipped(
    tiny_sources: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specdec.export import auto

    real = auto.write_engine

    def fails_on_hqq(plain: Path, out: Path, recipe: object) -> list[str]:
        """And says that the other keeps a weight in float32, as an FP16 graph may."""
        if recipe is RECIPES["int4-hqq"]:
            raise ValueError("no\nsuch shape")
        kept = ["a.weight"] if out.parent.name == "draft-int8-blocks" else []
        return real(plain, out, recipe) + kept  # type: ignore[arg-type]

    monkeypatch.setattr(auto, "write_engine", fails_on_hqq)
    monkeypatch.setattr(auto, "CANDIDATES", (RECIPES["int4-hqq"], RECIPES["int8-blocks"]))
    monkeypatch.setattr(auto.choose_draft, "__defaults__", (auto.CANDIDATES,))
    out = tmp_path / "package"
    report = export_package(
        ExportOptions(
            target=str(tiny_sources[0]),
            draft="self",
            out=out,
            draft_precision="auto",
            num_threads=1,
        )
    )
    assert report.measured is not None
    first, last = report.measured.candidates
    assert first.recipe == "int8-blocks"
    assert (last.recipe, last.problem) == ("int4-hqq", "no such shape")
    (note,) = report.manifest.checks["notes"]
    assert note.startswith("1 weights of the draft stay fp32: their values exceed FP16's range (")


def test_a_pair_below_the_required_speedup_is_not_written(
    tiny_sources: tuple[Path, Path], tmp_path: Path
) -> None:
    options = ExportOptions(
        target=str(tiny_sources[0]),
        draft="self",
        out=tmp_path / "package",
        num_threads=1,
        require_speedup=50.0,
    )
    with pytest.raises(ExportError, match=r"below --require-speedup 50; nothing was written"):
        export_package(options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"require_speedup": 0.0}, "allowed is a number above 0"),
        ({"require_speedup": float("nan")}, "allowed is a number above 0"),
        ({"require_speedup": 1.1, "report": "none"}, "report none, which measures no pair"),
        ({"require_speedup": 1.1, "draft": "none"}, "draft none, which measures no pair"),
        ({"report": "long"}, "report is 'long'; allowed are none, short, full"),
    ],
)
def test_options_that_contradict(changes: dict[str, object], reason: str, tmp_path: Path) -> None:
    base = {"target": "demo", "draft": "self", "out": tmp_path / "x"}
    with pytest.raises(ExportError, match=reason):
        ExportOptions(**{**base, **changes})  # type: ignore[arg-type]
