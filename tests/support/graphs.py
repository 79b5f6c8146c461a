"""Trace tiny models, write the graphs that GPUs run, and load either with ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from specdec.engines.devices import Device
from specdec.engines.engine import Engine
from specdec.engines.onnxruntime.load import load_ort_engine
from specdec.engines.package.manifest import EngineEntry
from specdec.export.calibration.ranges import calibrate
from specdec.export.calibration.scales import ActivationScale
from specdec.export.editing.model import save_graph
from specdec.export.engine_graphs import describe_engine, trace_graph, write_engine
from specdec.export.graphs.layouts import fits_in_place
from specdec.export.progress import SilentProgress
from specdec.export.tensorrt.attention import standardise_attention
from specdec.export.tensorrt.graph import write_standard_graph
from specdec.export.weights.recipes import find_recipe
from tests.export.tiny_models import VOCABULARY, make_model

__all__ = ["CAPACITY", "Traced", "logits", "trace_tiny"]

CAPACITY = 96


@dataclass(frozen=True)
class Traced:
    """A traced model: its in-place graph, and the entry that describes it."""

    plain: Path
    entry: EngineEntry

    def original(self, share: Engine | None = None) -> Engine:
        """The graph with `GroupQueryAttention`, float32."""
        return self._load(self.plain, self.entry, share)

    def standard_fp32(self) -> Engine:
        """The standard operators alone: every weight and the cache float32."""
        graph = ir.load(self.plain)
        standardise_attention(graph, CAPACITY, ir.DataType.FLOAT)
        path = self.plain.with_name("standard.onnx")
        save_graph(graph, path)
        return self._load(path, self.entry)

    def write(self, precision: str) -> tuple[Path, EngineEntry]:
        """The graph that TensorRT is given, and its entry (still for ONNX Runtime)."""
        recipe = find_recipe(precision, "tensorrt-rtx")
        path = self.plain.with_name(f"{recipe.name}.onnx")
        scales = self.calibrate() if recipe.calibrated else None
        assert write_standard_graph(self.plain, path, recipe, scales) == []
        changes = {"storage": recipe.storage, "compute": recipe.compute, "kv_dtype": "float16"}
        return path, replace(self.entry, recipe=recipe.name, **changes)

    def calibrate(self) -> dict[str, ActivationScale | None]:
        """Scales of activations, found on the model's own random tokens."""
        random = np.random.default_rng(11)
        samples = random.integers(2, self.entry.vocab_size, (6, 40)).tolist()
        return calibrate(self.plain, samples, self.entry.vocab_size, SilentProgress(), 1)

    def standard(self, precision: str, share: Engine | None = None) -> Engine:
        """That graph, run by ONNX Runtime."""
        return self._load(*self.write(precision), share)

    def write_cuda(self, precision: str) -> tuple[Path, EngineEntry]:
        """The graph that ONNX Runtime's CUDA provider is given, and its entry."""
        recipe = find_recipe(precision, device="cuda")
        path = self.plain.with_name(f"cuda-{recipe.name}.onnx")
        assert write_engine(self.plain, path, recipe) == []
        changes = {"storage": recipe.storage, "compute": "fp16", "kv_dtype": "float16"}
        return path, replace(self.entry, recipe=recipe.name, **changes)

    def cuda(self, precision: str, share: Engine | None = None) -> Engine:
        """That graph, run by ONNX Runtime's CPU provider."""
        return self._load(*self.write_cuda(precision), share)

    def _load(self, path: Path, entry: EngineEntry, share: Engine | None = None) -> Engine:
        device = Device("cpu")
        return load_ort_engine(
            path, entry, name="target", device=device, num_threads=1, share_cache_with=share
        )


def trace_tiny(name: str, folder: Path, **changes: Any) -> Traced | None:
    """Trace a model of `MODELS`; None when it does not fit the in-place cache."""
    model = make_model(name, **changes)
    if fits_in_place(model, CAPACITY) is not None:
        return None
    entry = describe_engine(
        "target/model.onnx",
        model,
        "in_place",
        find_recipe("fp32"),
        vocab_size=VOCABULARY,
        max_length=CAPACITY,
        shares_target_cache=False,
    )
    return Traced(trace_graph(model, "in_place", CAPACITY, folder), entry)


def logits(engine: Engine, token_ids: np.ndarray, rows: int) -> np.ndarray:
    """Float32 [T, width]: logits of every token, fed `rows` at a time into an empty cache."""
    engine.truncate(0)
    chunks = [token_ids[:, i : i + rows] for i in range(0, token_ids.shape[1], rows)]
    return np.concatenate([engine.forward(c, c.shape[1])[0].copy() for c in chunks])
