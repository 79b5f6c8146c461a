"""Run the real export on small sources and compare texts with transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from specdec.export import ExportOptions, ExportReport, export_package
from specdec.export.sources.source import resolve_source
from specdec.export.sources.weights import load_model
from specdec.runtime import SamplingParams, SpeculativeDecoder
from tests.export.tiny_models import VOCABULARY

__all__ = [
    "attention_nodes",
    "export",
    "read_model",
    "reference_text",
    "round_to_fp16",
    "speculative_text",
    "top_two_margin",
]


def export(source: Path, out: Path, draft: str | Path = "self", **options: Any) -> ExportReport:
    """Export `source` to `out`; FP32 target, INT8 draft, nothing timed unless told otherwise."""
    settings: dict[str, Any] = {"target_precision": "fp32", "num_threads": 1, "report": "none"}
    settings |= options
    return export_package(ExportOptions(str(source), str(draft), out, **settings))


def read_model(source: Path) -> Any:
    """The torch model of a source folder, which never ends a text."""
    model = load_model(resolve_source(str(source)))
    model.generation_config.eos_token_id = None
    return model


def reference_text(model: Any, prompt: list[int], count: int) -> list[int]:
    """`count` greedy tokens by transformers' own `generate`, padding ids excluded."""
    padding = range(VOCABULARY, model.config.get_text_config().vocab_size)
    with torch.no_grad():
        ids = model.generate(
            torch.tensor([prompt]),
            max_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
            suppress_tokens=list(padding) or None,
        )
    found: list[int] = ids[0, len(prompt) :].tolist()
    assert len(found) == count
    return found


def speculative_text(
    decoder: SpeculativeDecoder, prompt: list[int], count: int, num_draft_tokens: int
) -> list[int]:
    """`count` greedy tokens of a package; 0 draft tokens is the target alone."""
    params = SamplingParams(
        max_new_tokens=count, ignore_eos=True, num_draft_tokens=num_draft_tokens
    )
    return list(decoder.generate(prompt, params).token_ids)


def top_two_margin(model: Any, token_ids: list[int]) -> float:
    """Distance of the two largest logits of the torch model after a sequence."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([token_ids])).logits[0, -1, :VOCABULARY]
    second, first = np.partition(logits.numpy(), -2)[-2:]
    return float(first - second)


def attention_nodes(graph: Path) -> list[ir.Node]:
    """The in-place attention nodes of an engine, a layer each."""
    return [node for node in ir.load(graph).graph if node.op_type == "GroupQueryAttention"]


def round_to_fp16(model: Any) -> Any:
    """Round a torch model's matrices to FP16 and back, as a package with an FP16 target does.

    Vectors stay FP32 there, and so do matrices below 4,096 elements: use models without those.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(parameter.half().float())
    return model
