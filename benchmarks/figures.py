"""Writes the figures of one run of `peers.py` into README.md and docs/benchmarks.md.

    python benchmarks/peers.py --json docs/peers.json
    python benchmarks/figures.py docs/peers.json

A text between `<!-- figures: NAME -->` and `<!-- end of figures -->` is replaced; the names are
`summary`, `peers` and `origin`. With --check nothing is written, and the exit code is 1 when a
page differs from what the document gives.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from systems.document import DocumentError, PeersRun, read_run
from systems.markdown import full_tables, origin, summary

__all__ = ["blocks", "fill", "main"]

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md")
_MARKED = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def blocks(run: PeersRun) -> dict[str, str]:
    """The text of each name."""
    if 0.0 not in run.records:
        raise DocumentError("the document has no greedy requests; run peers.py with temperature 0")
    return {"summary": summary(run, 0.0), "peers": full_tables(run), "origin": origin(run)}


def fill(page: str, texts: Mapping[str, str]) -> str:
    """Replace what is between the markers of a page.

    Raises:
        DocumentError: a marker has a name that is not in `texts`.
    """

    def replacement(found: re.Match[str]) -> str:
        if found[2] not in texts:
            raise DocumentError(
                f"a page asks for the figures {found[2]!r}; there are {', '.join(texts)}"
            )
        return f"{found[1]}{texts[found[2]]}\n{found[3]}"

    return _MARKED.sub(replacement, page)


def main() -> int:
    """Write or check; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("document", type=Path, help="what peers.py --json wrote")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args()
    try:
        texts = blocks(read_run(options.document))
        pages = {path: fill(path.read_text(encoding="utf-8"), texts) for path in PAGES}
    except DocumentError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    stale = [path for path, page in pages.items() if path.read_text(encoding="utf-8") != page]
    for path in stale:
        print(f"{'differs' if options.check else 'wrote'} {path.relative_to(ROOT)}")
        if not options.check:
            path.write_text(pages[path], encoding="utf-8")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
