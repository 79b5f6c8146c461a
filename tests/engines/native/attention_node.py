"""One Attention node as a session, and passes through it with caches bound in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tests.engines.native.attention_reference import Settings

Floats = NDArray[np.float32]
INPUTS = (
    "query",
    "key",
    "value",
    "past_key",
    "past_value",
    "query_starts",
    "past_lengths",
    "slots",
)
CACHES = ("past_key", "past_value")
OPTIONAL = ("cos_cache", "sin_cache", "sinks", "read", "parents")
INTEGERS = ("query_starts", "past_lengths", "slots", "read", "parents")


@dataclass(frozen=True)
class Sequence:
    """Rows of one sequence: query [M, H * D], key and value [M, G * D], or all packed in query."""

    past: int
    slot: int
    query: Floats
    key: Floats | None = None
    value: Floats | None = None
    parents: list[int] | None = None


def model(
    settings: Settings, *, half: bool = False, packed: bool = False, given: Iterable[str] = ()
) -> onnx.ModelProto:
    """A graph of one node; `given` names the optional inputs that it has."""
    used = [n for n in INPUTS if not (packed and n in ("key", "value"))]
    used += [n for n in OPTIONAL if n in given]
    cache = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    kinds = dict.fromkeys(INTEGERS, TensorProto.INT32) | dict.fromkeys(CACHES, cache)
    outputs = {"output": TensorProto.FLOAT, "present_key": cache, "present_value": cache}
    node = helper.make_node(
        "Attention",
        [n if n in used else "" for n in (*INPUTS, *OPTIONAL)],
        list(outputs),
        domain="specdec",
        num_heads=settings.heads,
        kv_num_heads=settings.kv_heads,
        scale=settings.scale,
        softcap=settings.softcap,
        local_window_size=settings.window,
        do_rotary=int(settings.rotary_dim > 0),
        rotary_interleaved=int(settings.interleaved),
    )
    return one_node(node, {n: kinds.get(n, TensorProto.FLOAT) for n in used}, outputs)


def one_node(
    node: onnx.NodeProto, inputs: dict[str, int], outputs: dict[str, int]
) -> onnx.ModelProto:
    """A graph of this node; inputs and outputs by name with their element types."""
    graph = helper.make_graph(
        [node],
        "attention",
        [helper.make_tensor_value_info(n, kind, None) for n, kind in inputs.items()],
        [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs.items()],
    )
    domains = {"": 21, "specdec": 1, "com.microsoft": 1}
    opsets = [helper.make_opsetid(d, v) for d, v in domains.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feed(sequences: list[Sequence]) -> dict[str, NDArray[Any]]:
    """The inputs that describe the rows of one pass."""
    starts = np.cumsum([0, *(len(s.query) for s in sequences)]).astype(np.int32)
    out: dict[str, NDArray[Any]] = {
        "query": np.concatenate([s.query for s in sequences])[None],
        "query_starts": starts,
        "past_lengths": np.array([s.past for s in sequences], np.int32),
        "slots": np.array([s.slot for s in sequences], np.int32),
    }
    keys = [s.key for s in sequences if s.key is not None]
    values = [s.value for s in sequences if s.value is not None]
    if keys:
        out |= {"key": np.concatenate(keys)[None], "value": np.concatenate(values)[None]}
    trees = [s.parents for s in sequences if s.parents is not None]
    if trees:
        out["parents"] = np.concatenate(trees).astype(np.int32)
    return out


def run(
    node: ort.InferenceSession,
    inputs: Mapping[str, NDArray[Any]],
    keys: NDArray[Any],
    values: NDArray[Any],
) -> Floats:
    """One pass with the caches [S, G, C, D] written in place; returns the output [T, H * D]."""
    binding = node.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("output", "cpu")
    for name, array in (("key", keys), ("value", values)):
        place = array.ctypes.data
        binding.bind_input(f"past_{name}", "cpu", 0, array.dtype, array.shape, place)
        binding.bind_output(f"present_{name}", "cpu", 0, array.dtype, array.shape, place)
    node.run_with_iobinding(binding)
    out: Floats = binding.get_outputs()[0].numpy()[0]
    return out
