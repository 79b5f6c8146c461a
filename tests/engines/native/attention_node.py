"""One Attention node as a session, and passes through it with caches bound in place."""

from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tests.engines.native.attention_reference import Settings

Floats = NDArray[np.float32]
INPUTS = ("query", "key", "value", "past_key", "past_value", "query_starts", "past_lengths", "slots")
OPTIONAL = ("cos_cache", "sin_cache", "sinks", "read", "parents")
INTEGERS = ("query_starts", "past_lengths", "slots", "read", "parents")


@dataclass(frozen=True)
class Sequence:
    """Rows of one sequence: query [M, H * D] and key, value [M, G * D], or all three packed in query."""

    past: int
    slot: int
    query: Floats
    key: Floats | None = None
    value: Floats | None = None
    parents: list[int] | None = None


def session(
    library: str, settings: Settings, *, half: bool = False, packed: bool = False, given: tuple[str, ...] = (), threads: int = 2
) -> ort.InferenceSession:
    """A graph of one node; `given` names the optional inputs that it has."""
    used = [n for n in INPUTS if not (packed and n in ("key", "value"))] + [n for n in OPTIONAL if n in given]
    names = [n if n in used else "" for n in (*INPUTS, *OPTIONAL)]
    cache = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    kinds = {n: TensorProto.INT32 for n in INTEGERS} | {"past_key": cache, "past_value": cache}
    outputs = {"output": TensorProto.FLOAT, "present_key": cache, "present_value": cache}
    node = helper.make_node(
        "Attention",
        names,
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
    graph = helper.make_graph(
        [node],
        "attention",
        [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), None) for n in used],
        [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("specdec", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return load(model, library, threads)


def load(model: onnx.ModelProto, library: str | None, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if library:
        options.register_custom_ops_library(library)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feed(sequences: list[Sequence]) -> dict[str, NDArray[np.generic]]:
    """The inputs that describe the rows of one pass."""
    starts = np.cumsum([0, *(len(s.query) for s in sequences)]).astype(np.int32)
    out: dict[str, NDArray[np.generic]] = {
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
    inputs: dict[str, NDArray[np.generic]],
    keys: NDArray[np.generic],
    values: NDArray[np.generic],
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
