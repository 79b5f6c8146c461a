"""`specdec-audit` on the alphabet package, whose draft is wrong at one letter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specdec.cli.audit import command
from specdec.cli.common import invoke
from specdec.cli.views.audit import audit_lines
from specdec.runtime.sampling import verify as verify_module
from specdec.runtime.sampling.verify import Verdict

QUICK = ["--samples", "150", "--prefixes", "2", "--greedy-tokens", "20"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = invoke(command, [str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_correct_package_passes(capsys: pytest.CaptureFixture[str], package: Path) -> None:
    code, out, err = run(capsys, package, *QUICK)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("greedy: ok, 6 of 6 texts equal the target's (")
    assert lines[1].startswith("cache: ok, logits after a roll-back differ by 0 ")
    assert sum(line.startswith("sampling (") and line.endswith(": ok") for line in lines) == 2
    assert lines[-2] == "PASSED: no difference from the target alone was found"
    assert lines[-1].endswith("with probability 0.001)")


def test_json_and_options(
    capsys: pytest.CaptureFixture[str], package: Path, tmp_path: Path
) -> None:
    (tmp_path / "one").write_text("xyz", encoding="utf-8")
    options = ["--temperature", "2", "--top-p", "0.9", "--verify", "coupled", "--seed", "4"]
    code, out, err = run(
        capsys, package, *QUICK, "--prompt-file", tmp_path / "one", *options,
        "--num-draft-tokens", "3", "--false-alarm-rate", "0.01", "--depth", "2", "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["passed"]
    assert data["greedy"]["num_prompts"] == 1
    assert data["false_alarm_rate"] == 0.01
    (part,) = data["sampling"]
    assert part["options"] == {
        "temperature": 2.0, "top_p": 0.9, "verify": "coupled", "num_draft_tokens": 3, "seed": 4,
    }  # fmt: skip
    assert part["num_samples"] == 300
    assert [test["name"] for test in part["tests"]][:2] == ["token 1", "token 2"]


@pytest.mark.parametrize("drafter", ["ngram", "hybrid", "none"])
def test_other_drafters(capsys: pytest.CaptureFixture[str], package: Path, drafter: str) -> None:
    options = ["--num-draft-tokens", "auto"] if drafter == "none" else []
    code, out, _ = run(capsys, package, *QUICK, "--drafter", drafter, *options)
    assert code == 0
    assert "PASSED" in out


def test_a_fault_fails(
    capsys: pytest.CaptureFixture[str],
    package: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def trusting(target_probs: Any, draft_probs: Any, draft_tokens: Any, random: Any) -> Verdict:
        """Keeps every drafted token."""
        return Verdict(len(draft_tokens), random.final(target_probs[len(draft_tokens)]), 0)

    for name in ("block", "token"):
        monkeypatch.setitem(verify_module.VERIFIERS, name, trusting)
    (tmp_path / "before m").write_text("jkl", encoding="utf-8")
    code, out, _ = run(capsys, package, *QUICK, "--prompt-file", tmp_path / "before m")
    assert code == 1
    assert "greedy: FAILED" in out
    assert "differs at token" in out
    assert out.count("  FAILED") >= 1
    assert "FAILED: the output is not the target's own" in out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--temperature", "0"], "greedy text is always checked"),
        (["--top-p", "2"], "top_p is 2.0"),
        (["--samples", "3"], "is not in the range"),
        (["--false-alarm-rate", "0"], "is not in the range"),
        (["--drafter", "none", "--num-draft-tokens", "2"], "no drafter"),
        (["--max-new-tokens", "5"], "No such option"),
    ],
)
def test_refusals(
    capsys: pytest.CaptureFixture[str], package: Path, arguments: list[str], reason: str
) -> None:
    code, out, err = run(capsys, package, *QUICK, *arguments)
    assert (code, out) == (2, "")
    assert reason in err


def test_a_greedy_difference_is_explained() -> None:
    from specdec.runtime.audit import AuditReport, GreedyDifference, GreedyReport, RollbackReport

    tie = GreedyDifference(position=7, gap=1e-4, noise=2e-4, is_near_tie=True)
    report = AuditReport(
        0.001, GreedyReport(2, 60, (tie,)), RollbackReport(0.0, 0.1), (), 1.0, 0, 0
    )
    lines = audit_lines(report)
    assert "1 of 2 texts equal" in lines[0]
    assert (
        lines[1]
        == "  differs at token 7: the two best logits are 0.0001 apart, rounding explains 0.0002"
    )
    assert report.passed
