"""Engines of tiny models over both graphs of a CPU engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from specdec.engines.devices import Device
from specdec.engines.engine import Engine
from specdec.engines.native.engine import NativeEngine
from specdec.engines.native.library import native_library
from specdec.engines.native.load import load_native_engine
from specdec.engines.onnxruntime.load import load_ort_engine
from specdec.engines.onnxruntime.options import OrtOptions
from specdec.engines.package.entries import EngineEntry
from specdec.export.engine_graphs import write_engine
from specdec.export.native.pair import write_native
from specdec.export.native.rewritten import Rewritten
from specdec.export.weights.recipes import find_recipe
from tests.support.graphs import Traced

__all__ = ["Pair", "needs_library", "write_pair"]

needs_library = pytest.mark.skipif(
    native_library().path is None, reason=f"no native operators: {native_library().reason}"
)
CPU = Device("cpu")


@dataclass(frozen=True)
class Pair:
    """One engine's two graphs, and a copy of the graph they were made from."""

    before: Path
    """As it was written without native operators."""
    graph: Path
    entry: EngineEntry
    done: Rewritten

    def original(self) -> Engine:
        """The graph as it was."""
        return load_ort_engine(self.before, self.entry, name="target", device=CPU, num_threads=1)

    def standard(self, share: Engine | None = None) -> Engine:
        """The graph of standard operators over the packed data file."""
        return load_ort_engine(
            self.graph,
            self.entry,
            name="target",
            device=CPU,
            num_threads=1,
            share_cache_with=share,
        )

    def native(
        self, num_slots: int = 1, threads: int = 1, share: Engine | None = None
    ) -> NativeEngine:
        """The native graph."""
        assert self.entry.native is not None
        return load_native_engine(
            self.graph.with_name(self.entry.native.graph),
            self.entry,
            native_library(),
            name="target",
            device=CPU,
            num_threads=threads,
            share_cache_with=share,
            options=OrtOptions(num_slots=num_slots),
        )


def write_pair(traced: Traced, precision: str, folder: Path) -> Pair:
    """Write a traced model with a recipe, as it is and with a native graph, into `folder`."""
    recipe = find_recipe(precision)
    folder.mkdir()
    before, graph = folder / "before.onnx", folder / "model.onnx"
    write_engine(traced.plain, before, recipe)
    write_engine(traced.plain, graph, recipe)
    done = write_native(graph, graph.name)
    assert not isinstance(done, str), done
    entry = replace(
        traced.entry,
        recipe=recipe.name,
        storage=recipe.storage,
        compute=recipe.compute,
        native=done[0],
    )
    return Pair(before, graph, entry, done[1])
