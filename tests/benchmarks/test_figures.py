"""The figures of the pages come from one document, and a page that differs is noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import figures
import pytest
from systems.document import DocumentError, PeersRun, read_run, write_run
from systems.markdown import full_tables, origin, summary
from systems.table import Record

PROGRAM = Path(figures.__file__)
SPEEDS = {
    "specdec, plain": 50.0,
    "specdec, INT8 draft, K = 4": 90.0,
    "specdec, hybrid, K = auto": 100.0,
    "genai, plain": 40.0,
    "genai, INT8 draft, K = 6": 44.0,
    "genai, look-up, K = 8": 48.0,
    "llama.cpp, plain F16": 80.0,
    "llama.cpp, plain F32": 50.0,
    "transformers, plain": 20.0,
}


@pytest.fixture
def run() -> PeersRun:
    """Requests of ten tokens; each prompt is slower than the last for everyone."""
    records = [
        Record(name, prompt, repeat, (1.0 + prompt) * 10 / speed, tuple(range(10)))
        for name, speed in SPEEDS.items()
        for prompt in range(3)
        for repeat in range(2)
    ]
    return PeersRun(
        machine={"cpu": "A processor", "cores": 2},
        versions={"genai": {"onnxruntime-genai": "0.18"}},
        settings={"threads": 2, "repeats": 2, "tokens": 10},
        prompts=3,
        records={0.0: records, 0.7: records[:12]},
    )


def test_the_document_comes_back(run: PeersRun, tmp_path: Path) -> None:
    write_run(run, tmp_path / "run.json")
    assert read_run(tmp_path / "run.json") == run
    lines = (tmp_path / "run.json").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if '"seconds"' in line]) == 54 + 12


def test_every_system_shows_its_best_row(run: PeersRun) -> None:
    rows = summary(run, 0.0).splitlines()[2:]
    assert rows == [
        "| specdec (FP32) | 25.0 | hybrid, K = auto | 50.0 | 2.00 (2.00 to 2.00) |  |",
        "| ONNX Runtime GenAI (FP32) | 20.0 | look-up, K = 8 | 24.0 | 1.20 (1.20 to 1.20) "
        "| 2.08 (2.08 to 2.08) |",
        "| llama.cpp (F16) | 40.0 | none |  |  | 1.25 (1.25 to 1.25) |",
        "| llama.cpp (F32) | 25.0 | none |  |  | 2.00 (2.00 to 2.00) |",
        "| transformers (FP32) | 10.0 | none |  |  | 5.00 (5.00 to 5.00) |",
    ]


def test_the_full_tables_hold_every_setting(run: PeersRun) -> None:
    text = full_tables(run)
    assert text.count("| ONNX Runtime GenAI, look-up, K = 8 | FP32 | 24.0 | 1.20") == 1
    assert "specdec, hybrid, K = auto, over the fastest other with an F16 target" in text
    assert text.index("Temperature 0:") < text.index("Temperature 0.7:")
    assert "100% (6 of 6 identical)" in text
    assert "A processor, 2 threads; 3 prompts, 2 repeats, 10 new tokens" in origin(run)


def test_pages_are_filled_between_their_markers(run: PeersRun) -> None:
    page = "a\n<!-- figures: origin -->\nold\n<!-- end of figures -->\nb\n"
    filled = figures.fill(page, {"origin": "new"})
    assert filled == "a\n<!-- figures: origin -->\nnew\n<!-- end of figures -->\nb\n"
    assert figures.fill(filled, {"origin": "new"}) == filled
    with pytest.raises(DocumentError, match="asks for the figures 'origin'; there are other"):
        figures.fill(page, {"other": ""})


def test_the_pages_ask_for_what_there_is(run: PeersRun) -> None:
    texts = figures.blocks(run)
    asked = [figures.fill(page.read_text("utf-8"), texts) for page in figures.PAGES]
    assert "2.08 (2.08 to 2.08)" in asked[0]
    assert "| ONNX Runtime GenAI, look-up, K = 8 | FP32 | 24.0 | 1.20" in asked[1]
    assert all("A processor, 2 threads" in page for page in asked)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is no document of peers.py (JSONDecodeError"),
        ("[]", "is no document of peers.py (TypeError"),
        ('{"records": []}', "is no document of peers.py (KeyError: 'machine')"),
    ],
)
def test_another_file_is_one_line(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "run.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_configuration_of_another_release_is_named(run: PeersRun, tmp_path: Path) -> None:
    write_run(run, tmp_path / "run.json")
    text = (tmp_path / "run.json").read_text().replace("genai, plain", "genai, gone")
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(DocumentError, match="'genai, gone', which this release"):
        read_run(tmp_path / "run.json")


def test_a_document_without_greedy_requests(run: PeersRun) -> None:
    del run.records[0.0]
    with pytest.raises(DocumentError, match="no greedy requests"):
        figures.blocks(run)


def test_the_published_figures_are_those_of_the_published_run() -> None:
    document = figures.ROOT / "docs" / "peers.json"
    if not document.exists():
        pytest.skip("no run is published")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(document), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads(document.read_text(encoding="utf-8"))["machine"]["cpu"]
