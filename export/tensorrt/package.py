"""Last step of a TensorRT export: build engines from the checked standard graphs.

Up to here the package holds standard ONNX graphs that ONNX Runtime runs, so every check of the
export has judged the very operators, types and weights that TensorRT is given. Now each graph is
built and makes way for its engine. The package holds no costs: the runtime measures its own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from specdec.engines.package.build_record import TensorRTEntry
from specdec.engines.package.manifest import EngineEntry, Manifest, inventory
from specdec.export.editing.model import is_token_lookup
from specdec.export.options import ExportOptions
from specdec.export.progress import Progress
from specdec.export.tensorrt.build import EngineBuild, Profile, build_engine

__all__ = ["build_engines", "engine_profiles", "half_bytes", "keep_graphs", "widened"]

_NAMES = {
    ir.DataType.FLOAT: "fp32",
    ir.DataType.FLOAT16: "fp16",
    ir.DataType.INT8: "int8",
    ir.DataType.INT4: "int4",
}
_HALF = 2
"""Bytes of an FP16 number."""
_MOST_DRAFTED = 32
"""Largest K of the runtime; a verification pass has K + 1 rows."""
_TUNED_VERIFY_ROWS = 5


def build_engines(
    directory: Path, manifest: Manifest, options: ExportOptions, progress: Progress
) -> Manifest:
    """Replace the graphs of a package by engines.

    Args:
        directory: the package, with standard graphs.
        manifest: its manifest, which says "onnxruntime".
        options: whose backend is a TensorRT one.
        progress: receives a step an engine, from 0 to 1.

    Returns:
        The manifest of the finished package, not yet written.

    Raises:
        ExportError, MissingDependencyError: as `build_engine`.
    """
    target = _build(directory, manifest.target, "target", options, progress)
    draft = manifest.draft and _build(directory, manifest.draft, "draft", options, progress)
    changes = {"target": target, "draft": draft, "files": inventory(directory)}
    return Manifest(**{**vars(manifest), **changes})


def keep_graphs(manifest: Manifest, backend: str) -> Manifest:
    """The manifest of a package whose graphs a provider of ONNX Runtime builds when it loads.

    Args:
        manifest: of the checked graphs, which says "onnxruntime".
        backend: name of the backend that runs them.
    """
    target = replace(manifest.target, backend=backend)
    draft = manifest.draft and replace(manifest.draft, backend=backend)
    return replace(manifest, target=target, draft=draft, costs={})


def engine_profiles(entry: EngineEntry, name: str) -> tuple[Profile, ...]:
    """The profiles of a target (verify, prompt) or of a draft (one row, catch up, prompt).

    A draft lives on single rows and gets a profile for them. A target verifies: an own profile
    for one row would store each of its large matrices twice.
    """
    most = min(_MOST_DRAFTED + 1, entry.max_length)
    prompt = Profile(1, entry.prefill_chunk, entry.prefill_chunk, 1)
    if name == "draft":
        return (Profile(1, 1, 1, 1), Profile(1, min(2, most), most, most), prompt)
    return (Profile(1, min(_TUNED_VERIFY_ROWS, most), most, most), prompt)


def _build(
    directory: Path, entry: EngineEntry, name: str, options: ExportOptions, progress: Progress
) -> EngineEntry:
    graph = directory / entry.graph
    out = graph.with_suffix(".engine")
    profiles = engine_profiles(entry, name)
    build = EngineBuild(
        options.backend, profiles, options.compute_capabilities, options.timing_cache
    )
    precisions = _precisions(graph)
    half = half_bytes(graph)
    with progress.step(f"build {name} engine", total=1.0) as step:
        built = build_engine(graph, out, build, step)
    doubt = widened(name, options.backend, out.stat().st_size, half)
    if doubt is not None:
        progress.note(doubt)
    graph.with_name(f"{graph.name}.data").unlink()
    graph.unlink()
    record = TensorRTEntry(
        version=built.version,
        compute_capabilities=built.compute_capabilities,
        profiles=tuple((p.lowest, p.tuned, p.highest) for p in profiles),
        scored_rows=tuple(p.scored for p in profiles),
        precisions=precisions,
        build_seconds=round(built.seconds, 1),
    )
    path = out.relative_to(directory).as_posix()
    return replace(entry, graph=path, backend=options.backend, tensorrt=record)


def half_bytes(graph: Path) -> int | None:
    """Bytes of the weights of a standard graph if its matrices were FP16; None where all are.

    A plan of quantized weights that is as large holds them widened, and reads them so.
    """
    weights = [value.const_value for value in ir.load(graph).graph.initializers.values()]
    known = [weight for weight in weights if weight is not None]
    if not any(weight.dtype in (ir.DataType.INT8, ir.DataType.INT4) for weight in known):
        return None
    return sum(int(_HALF * w.size if w.size > 1 else w.nbytes) for w in known)


def widened(name: str, backend: str, plan_bytes: int, half: int | None) -> str | None:
    """What to say of a plan that may hold quantized weights in FP16; None where it does not.

    `tensorrt` documents weights that are quantized alone for INT4 only. `tensorrt-rtx` keeps INT8
    weights as they are, and larger plans of its hold a second layout for another profile.

    Args:
        name: "target" or "draft".
        backend: that built the plan.
        plan_bytes: size of the plan.
        half: see `half_bytes`.
    """
    if backend != "tensorrt" or half is None or plan_bytes < half:
        return None
    return (
        f"the {name} engine has {plan_bytes / 1e6:.0f} MB, no less than its weights in FP16 "
        f"({half / 1e6:.0f} MB): tensorrt may hold them widened, and reads them so in every pass; "
        "take --draft-precision int4 or int8-qdq"
    )


def _precisions(graph: Path) -> dict[str, str]:
    """Element types by group of layers; a group of several lists them."""
    model = ir.load(graph)
    matrices = [_stored_type(node.inputs[1]) for node in model.graph if node.op_type == "MatMul"]
    stored = [name for name in matrices if name is not None]
    rows = {
        "int8" if _is_quantized(node.inputs[0]) else "fp16"
        for node in model.graph
        if node.op_type == "MatMul" and _stored_type(node.inputs[1]) is not None
    }
    return {
        "projections": ", ".join(sorted(set(stored[:-1]))),
        "activations": ", ".join(sorted(rows, reverse=True)),
        "head": stored[-1],
        "embedding": "fp32" if any(is_token_lookup(node) for node in model.graph) else "fp16",
        "attention": "fp16",
        "kv_cache": "fp16",
        "norms": "fp32",
        "logits": "fp32",
    }


def _is_quantized(rows: ir.Value) -> bool:
    producer = rows.producer()
    return producer is not None and producer.op_type == "DequantizeLinear"


def _stored_type(matrix: ir.Value) -> str | None:
    """How a weight is stored; None for what is no weight."""
    producer = matrix.producer()
    if producer is not None and producer.op_type == "DequantizeLinear":
        matrix = producer.inputs[0]
    return _NAMES[matrix.const_value.dtype] if matrix.is_initializer() else None
