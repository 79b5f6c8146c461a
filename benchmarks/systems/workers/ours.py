"""specdec itself. Models: "model" (the draft drafts) and "hybrid" (look-up first)."""

from __future__ import annotations

from pathlib import Path

import protocol

from specdec.runtime import SamplingParams, SpeculativeDecoder
from specdec.runtime.decoding.parts import DrafterName


def prepare(settings: protocol.Settings) -> None:
    """Export the demo pair: FP16 target, INT8 self-draft."""
    from specdec.export import ExportOptions, export_package

    def export(path: Path) -> None:
        export_package(ExportOptions(target="demo", draft="self", out=path))

    protocol.written_once(settings.models / "package", export)


def load(settings: protocol.Settings, model: str) -> protocol.Generate:
    """Load the package."""
    drafters: dict[str, DrafterName] = {"model": "model", "hybrid": "hybrid"}
    decoder = SpeculativeDecoder.load(
        settings.models / "package", num_threads=settings.threads, drafter=drafters[model]
    )

    def generate(request: protocol.Request) -> tuple[int, ...]:
        params = SamplingParams(
            max_new_tokens=request.max_new_tokens,
            temperature=request.temperature,
            seed=request.seed,
            num_draft_tokens=request.num_draft_tokens,
        )
        return decoder.generate(request.prompt, params).token_ids

    return generate


if __name__ == "__main__":
    protocol.run(prepare, load, ["specdec-edge", "onnxruntime", "numpy"])
