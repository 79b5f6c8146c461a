"""`specdec-inspect` and `specdec-bench`: what they print, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specdec.cli.bench import command as bench
from specdec.cli.common import invoke
from specdec.cli.inspector import command as inspect

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_package_without_report(package: Path, capsys: Captured) -> None:
    assert invoke(inspect, [str(package)]) == 0
    out = capsys.readouterr().out
    assert "No report yet: specdec-inspect --measure short makes one." in out
    assert "\x1b" not in out, "plain when piped"
    assert max(map(len, out.splitlines())) <= 80


@pytest.fixture(scope="module")
def measured(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the alphabet package with a report, a shorter context to keep it quick."""
    import shutil

    copy = Path(shutil.copytree(package, tmp_path_factory.mktemp("measured") / "package"))
    assert invoke(inspect, [str(copy), "--measure", "short", "--save", "--num-threads", "1"]) == 0
    return copy


def test_a_saved_report_is_shown(measured: Path, capsys: Captured) -> None:
    assert invoke(inspect, [str(measured)]) == 0
    captured = capsys.readouterr()
    for part in ("Speed", "Alternatives", "Milliseconds of a pass", "Agreement on our own texts"):
        assert part in captured.out
    assert "another machine" not in captured.out
    assert captured.err == ""
    assert "\x1b" not in captured.out


def test_what_is_in_the_way_of_a_written_file_stays(
    measured: Path, tmp_path: Path, capsys: Captured
) -> None:
    """Links under the names that a writer might use, and a page that is a link."""
    victim, page = tmp_path / "victim", tmp_path / "page.html"
    victim.write_text("precious")
    page.symlink_to(victim)
    (measured / "specdec.json.partial").symlink_to(victim)
    measuring = ["--measure", "short", "--save", "--num-threads", "1"]
    assert invoke(inspect, [str(measured), *measuring]) == 0
    assert invoke(inspect, [str(measured), "--html", str(page)]) == 1
    reason = f"error: {page} is a link; allowed is a new name or a regular file: name the file"
    assert reason in capsys.readouterr().err
    assert victim.read_text() == "precious"
    assert invoke(inspect, [str(measured)]) == 0
    (measured / "specdec.json.partial").unlink()


def test_json_and_html(measured: Path, tmp_path: Path, capsys: Captured) -> None:
    page = tmp_path / "report.html"
    assert invoke(inspect, [str(measured), "--json", "--html", str(page)]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert captured.out.count("\n") == 1
    assert document["report"]["level"] == "short"
    assert document["measured_here"] is True
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_saved_costs_seed_the_draft_length(measured: Path) -> None:
    from specdec.engines import read_package
    from specdec.runtime.drafting.costs import CostTable

    assert CostTable.from_mapping(read_package(measured).manifest.costs) is not None


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--save"], 2, "--save stores a new measurement"),
        (["--measure", "deep"], 2, "'deep' is not one of"),
        (["--measure", "short", "--device", "tpu"], 1, "device 'tpu' is not understood"),
    ],
)
def test_inspect_refuses(
    package: Path, arguments: list[str], code: int, reason: str, capsys: Captured
) -> None:
    assert invoke(inspect, [str(package), *arguments]) == code
    assert reason in capsys.readouterr().err


def test_a_malformed_report_is_one_line(measured: Path, tmp_path: Path, capsys: Captured) -> None:
    import shutil

    copy = Path(shutil.copytree(measured, tmp_path / "package"))
    manifest = json.loads((copy / "specdec.json").read_text(encoding="utf-8"))
    manifest["checks"]["report"]["verdict"] = {"decision": "worth it"}
    (copy / "specdec.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert invoke(inspect, [str(copy)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: report.verdict is without 'changes'")
    assert err.count("\n") == 1


def test_bench_prints_a_table_and_writes_a_document(
    package: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "bench.json"
    arguments = [str(package), "--prompt", "abc", "--repeats", "2", "--num-threads", "1"]
    assert invoke(bench, [*arguments, "--num-draft-tokens", "2,4", "--out", str(out)]) == 0
    captured = capsys.readouterr()
    assert "tokens/s" in captured.out
    assert "\x1b" not in captured.out
    assert max(map(len, captured.out.splitlines())) <= 80
    document = json.loads(out.read_text(encoding="utf-8"))
    assert [r["num_draft_tokens"] for r in document["results"]] == ["0", "2", "4"]
    assert invoke(bench, ["--compare", str(out), str(out)]) == 0
    compared = capsys.readouterr().out
    assert compared.count("needs 6") == 3
    assert max(map(len, compared.splitlines())) <= 80


def test_bench_json_is_one_document(package: Path, capsys: Captured) -> None:
    assert invoke(bench, [str(package), "--prompt", "abc", "--repeats", "1", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["format"] == 1
    assert captured.out.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "give a package directory, or --simulate-target SIZE"),
        (["PACKAGE", "--simulate-target", "1B"], "give a package directory, or"),
        (["PACKAGE", "--num-draft-tokens", "4,x"], "allowed is 0 .. 32 or auto, separated by"),
        (["PACKAGE", "--num-draft-tokens", "33"], "allowed is 0 .. 32 or auto"),
        (["PACKAGE", "--simulate-acceptance", "1.2"], "allowed is 0 .. 1, separated by commas"),
        (["PACKAGE", "--simulate-acceptance", "0.5", "--temperature", "1"], "greedy decoding"),
        (["PACKAGE", "--num-threads", "0"], "allowed is 1 .. 1024 threads"),
        (["PACKAGE", "--prompt", "a", "--category", "chat"], "give one or the other"),
        (["PACKAGE", "--context", "400000"], "do not fit"),
    ],
)
def test_bench_refuses(package: Path, arguments: list[str], reason: str, capsys: Captured) -> None:
    given = [str(package) if argument == "PACKAGE" else argument for argument in arguments]
    assert invoke(bench, given) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert reason in " ".join(captured.err.split())


def test_a_simulated_target_has_a_size(capsys: Captured) -> None:
    pytest.importorskip("optimum.exporters.onnx", reason="builds the model")
    assert invoke(bench, ["--simulate-target", "huge"]) == 2
    assert "allowed is 1M .. 20B" in capsys.readouterr().err


@pytest.mark.slow
def test_a_simulated_target_is_benchmarked(capsys: Captured) -> None:
    pytest.importorskip("optimum.exporters.onnx", reason="builds the model")
    arguments = ["--simulate-target", "1M", "--simulate-acceptance", "1.0", "--repeats", "1"]
    arguments += ["--num-draft-tokens", "3", "--max-new-tokens", "13", "--category", "chat"]
    assert invoke(bench, [*arguments, "--json"]) == 0
    plain, drafted = json.loads(capsys.readouterr().out)["results"]
    assert plain["num_draft_tokens"] == "0"
    assert drafted["drafter"] == "simulated"
    assert drafted["acceptance_rate"] == 1.0
    assert drafted["tokens_per_round"] == pytest.approx(13 / 4)


def test_compare_needs_two_benchmarks_of_one_kind(
    package: Path, tmp_path: Path, capsys: Captured
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    assert invoke(bench, ["--compare", str(broken), str(broken)]) == 2
    assert "is not JSON of specdec-bench" in capsys.readouterr().err
    assert invoke(bench, [str(package), "--compare", str(broken), str(broken)]) == 2
    assert "measures nothing" in capsys.readouterr().err
    broken.write_text("{}", encoding="utf-8")
    assert invoke(bench, ["--compare", str(broken), str(broken)]) == 1
    assert "without" in capsys.readouterr().err
