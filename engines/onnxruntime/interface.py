"""Check a loaded graph against its manifest entry before buffers are bound to it.

A draft that shares the target's cache writes into the target's buffers by address: a graph of
another geometry must be refused here; otherwise it would corrupt the target's cache.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from specdec.engines.errors import EngineError
from specdec.engines.in_place import PAST, PRESENT
from specdec.engines.package.entries import EngineEntry

__all__ = ["check_interface"]

_ADVICE = "allowed is a graph written by specdec-export; export the package again"


def check_interface(
    session: Any, entry: EngineEntry, name: str, lengths: Collection[str] = ("seqlens_k",)
) -> None:
    """Compare a session's inputs and outputs with the manifest.

    Args:
        session: an `onnxruntime.InferenceSession`.
        entry: the engine's manifest entry.
        name: "target" or "draft", for messages.
        lengths: inputs through which an in-place graph is told lengths.

    Raises:
        EngineError: an input or output is missing, or its shape or type differs.
    """
    inputs = {node.name: node for node in session.get_inputs()}
    outputs = {node.name: node for node in session.get_outputs()}
    required = {"input_ids", "logit_rows"}
    if entry.layout == "in_place":
        required.update(lengths)
    _require(sorted(required - inputs.keys()), entry, name)
    _require(sorted({"logits"} - outputs.keys()), entry, name)
    width = outputs["logits"].shape[-1]
    if isinstance(width, int) and width != entry.logits_width:
        raise EngineError(
            f"the {name} engine {entry.graph} has {width} logits a row; its manifest entry says "
            f"{entry.logits_width}; {_ADVICE}"
        )
    parts = [f"{i}.{part}" for i in range(entry.num_layers) for part in ("key", "value")]
    if entry.layout == "in_place":
        _check_cache(inputs, outputs, parts, entry, name)
    else:
        pasts = {node[len(PAST) :] for node in inputs if node.startswith(PAST)}
        presents = {node[len(PRESENT) :] for node in outputs if node.startswith(PRESENT)}
        if not pasts or pasts != presents:
            _require(sorted(pasts ^ presents) or [f"{PAST}*"], entry, name)


def _require(missing: list[str], entry: EngineEntry, name: str) -> None:
    if missing:
        raise EngineError(
            f"the {name} engine {entry.graph} lacks {', '.join(missing[:4])}; {_ADVICE}"
        )


def _check_cache(
    inputs: dict[str, Any], outputs: dict[str, Any], parts: list[str], entry: EngineEntry, name: str
) -> None:
    """Every layer's buffers: [batch, kv_heads, capacity, head_size] of the stated type."""
    found = {node for node in inputs if node.startswith(PAST)}
    _require([PAST + part for part in parts if PAST + part not in found], entry, name)
    _require([PRESENT + part for part in parts if PRESENT + part not in outputs], entry, name)
    extra = sorted(found - {PAST + part for part in parts})
    if extra:
        raise EngineError(
            f"the {name} engine {entry.graph} has a cache {extra[0]}, but its manifest entry says "
            f"{entry.num_layers} layers; {_ADVICE}"
        )
    wanted_type = f"tensor({ {'float32': 'float'}.get(entry.kv_dtype, entry.kv_dtype) })"
    for part in parts:
        for node in (inputs[PAST + part], outputs[PRESENT + part]):
            shape = list(node.shape)
            heads_and_size = (shape[1], shape[3]) if len(shape) == 4 else None
            if heads_and_size != (entry.num_kv_heads, entry.head_size) or node.type != wanted_type:
                raise EngineError(
                    f"{node.name} of the {name} engine is {node.type} {shape}; its manifest entry "
                    f"says {wanted_type} [batch, {entry.num_kv_heads}, capacity, "
                    f"{entry.head_size}]; {_ADVICE}"
                )
