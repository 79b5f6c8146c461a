"""The decisions of `scripts/install.py`; its pip calls are what `make test` itself went through."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "install.py"


@pytest.fixture(scope="module")
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("requirement", "cpu"),
    [
        ("sympy>=1.13.3", True),
        ("nvidia-cudnn-cu13==9.20.0.48; platform_system == 'Linux'", False),
        ("cuda-toolkit[cublas]==13.0.3; platform_system == 'Linux'", False),
        ("triton==3.7.1; platform_system == 'Linux'", False),
    ],
)
def test_cuda_builds_are_told_by_what_they_require(
    install: ModuleType, requirement: str, cpu: bool
) -> None:
    assert install.is_cpu_build({"requires_dist": ["filelock", requirement]}) is cpu


def test_no_requirements_is_a_cpu_build(install: ModuleType) -> None:
    assert install.is_cpu_build({"name": "torch"})


def test_versions_compare_as_numbers(install: ModuleType) -> None:
    assert install.release("2.13.0+cpu") == install.release("2.13.0") == (2, 13, 0)
    assert install.release("2.9.1") < install.release("2.13.0") < install.release("2.13.1+cu130")
    assert install.release("26.3") > install.release(install.PIP_MINIMUM)


def test_requirements_are_those_of_the_extras(install: ModuleType) -> None:
    project = (SCRIPT.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"torch>={install.TORCH_MINIMUM}"' in project
    assert f'tensorrt-rtx = ["{install.TENSORRT}"]' in project


def test_a_tensorrt_that_cannot_be_had_is_one_line(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "TENSORRT", "there-is-no-such-distribution>=1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # a real pip that finds nothing, at once
    install.install_tensorrt()
    monkeypatch.setattr(install.platform, "machine", lambda: "riscv64")
    install.install_tensorrt()
    first, second = capsys.readouterr().out.splitlines()
    assert "left out, the tests that build its engines are skipped" in first
    assert f"there is no build for {sys.platform} on riscv64" in second


def test_type_checkers_read_the_checkout(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real mypy, asked about an environment that has nothing but the line to the links."""
    pytest.importorskip("mypy", reason="checks the types")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    (site_packages,) = tmp_path.glob("lib/python3.*/site-packages")
    for name in ("MYPYPATH", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    program = (
        "from specdec.runtime import SpeculativeDecoder\n"
        "reveal_type(SpeculativeDecoder.load('p').max_length)\n"
    )
    (tmp_path / "program.py").write_text(program, encoding="utf-8")

    def checked() -> str:
        python = str(tmp_path / "bin" / "python")
        arguments = ["--python-executable", python, "--cache-dir", str(tmp_path / "cache")]
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *arguments, "program.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    assert "Cannot find implementation or library stub" in checked()
    install.link_checkout(site_packages)
    assert re.search(r'Revealed type is "(builtins\.)?int"', checked())
