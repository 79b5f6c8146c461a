"""A deeper model that computes the same function: a synthetic target, for its cost alone.

After every layer come copies of it whose output projections (`o_proj`, `down_proj`) are zero:
each reads its input, does the whole work of a layer, and adds nothing. The text and the
acceptance of a draft stay what they were; the target costs `factor` times as many layers. So
the figures show what a relatively cheaper draft brings, not what a better model would say.
"""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

__all__ = ["deepen", "write_deep_model"]


def deepen(model: Any, factor: int) -> Any:
    """Give a transformers Llama model `factor` times as many layers, in place."""
    import torch

    layers = torch.nn.ModuleList()
    for layer in model.model.layers:
        layers.append(layer)
        for _ in range(factor - 1):
            idle = copy.deepcopy(layer)
            torch.nn.init.zeros_(idle.self_attn.o_proj.weight)
            torch.nn.init.zeros_(idle.mlp.down_proj.weight)
            layers.append(idle)
    for index, layer in enumerate(layers):
        layer.self_attn.layer_idx = index
    model.model.layers = layers
    model.config.num_hidden_layers = len(layers)
    return model


def write_deep_model(source: Path, out: Path, factor: int) -> None:
    """Write the Hugging Face folder `source` again as `out`, deeper, in FP16."""
    from specdec.export.sources.source import resolve_source
    from specdec.export.sources.weights import load_model

    partial = out.with_name(f"{out.name}.partial")
    deepen(load_model(resolve_source(str(source))), factor).half().save_pretrained(partial)
    for file in [*source.glob("tokenizer*"), *source.glob("*.jinja")]:
        shutil.copyfile(file, partial / file.name)
    partial.rename(out)
