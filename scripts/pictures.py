"""Makes the pictures of README.md from what a package really prints and reports.

    .venv/bin/python scripts/pictures.py packages/demo

writes docs/images/run.svg, a terminal with a run of `specdec-run`, and docs/images/report.png, the
top of the report page in a headless Chromium. The package needs a report of this machine
(`specdec-inspect DIR --measure short --save`); the machine should do nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
PROMPT = "Give me three tips for writing clear documentation."
BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
WIDTH = 96


def terminal(package: Path, out: Path) -> None:
    """Run the command and draw its output; raises `CalledProcessError` when it fails."""
    program = "from specdec_edge import run; raise SystemExit(run())"
    arguments = ["--prompt", PROMPT, "--max-new-tokens", "128", "--stats"]
    done = subprocess.run(
        [sys.executable, "-c", program, str(package), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(f'[bold]$ specdec-run my-package --prompt "{PROMPT}" --stats')
    console.print(Text(done.stdout.rstrip("\n")))
    console.save_svg(str(out), title="specdec-run")


def report(package: Path, out: Path) -> None:
    """Draw the page of the package's report."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"error: no browser is installed ({', '.join(BROWSERS)})")
    program = "from specdec_edge import inspect; raise SystemExit(inspect())"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        subprocess.run(
            [sys.executable, "-c", program, str(package), "--html", str(page)],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,900"]
        subprocess.run(
            [browser, *options, f"--screenshot={out}", page.as_uri()],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )


def main() -> int:
    """Make both; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path)
    package = parser.parse_args().package
    IMAGES.mkdir(parents=True, exist_ok=True)
    terminal(package, IMAGES / "run.svg")
    report(package, IMAGES / "report.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
