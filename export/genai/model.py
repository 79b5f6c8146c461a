"""The engine of a GenAI folder as a model of the pipeline: scored as it is, then adapted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from specdec.engines.package.manifest import EngineEntry
from specdec.export.errors import SourceError
from specdec.export.genai.graph import adapt_graph, read_decoder
from specdec.export.sources.genai_folder import GenaiConfig
from specdec.export.weights.recipes import Recipe

__all__ = ["AS_GIVEN", "GenaiModel"]

AS_GIVEN = "as given"
"""Recipe of weights that are taken as they are."""

_KV_DTYPES = {ir.DataType.FLOAT: "float32", ir.DataType.FLOAT16: "float16"}


class GenaiModel:
    """A folder's engine.

    Raises:
        UnsupportedModelError: its graph is not that of a decoder with an in-place cache.
    """

    def __init__(self, config: GenaiConfig) -> None:
        self.config = config
        model = read_decoder(config)
        named = {value.name: value for value in (*model.graph.inputs, *model.graph.outputs)}
        self._kv = named[config.cache_names["past_key_values.0.key"]].dtype
        width = named["logits"].shape[2]
        self.logits_width = width if isinstance(width, int) else config.vocab_size
        self._has_positions = "position_ids" in named
        if self._kv not in _KV_DTYPES:
            raise SourceError(
                f"the KV cache of {config.name} is {self._kv}; allowed is float32 or float16"
            )
        bits = {
            node.attributes["bits"].as_int()
            for node in model.graph
            if node.op_type == "MatMulNBits" and "bits" in node.attributes
        }
        kinds = {4: "int4", 8: "int8"}
        wide = "fp32" if self._kv == ir.DataType.FLOAT else "fp16"
        self._storage = kinds.get(min(bits), wide) if bits else wide
        self._compute = wide

    @property
    def recipe(self) -> Recipe:
        """The precision of the folder: its weights are taken as they are."""
        return Recipe(AS_GIVEN, self._storage, self._compute, "none", kv_dtype=_KV_DTYPES[self._kv])

    def score(self, ids: list[int], vocab_size: int) -> NDArray[np.float32]:
        """The folder's own logits after each token, by its untouched graph in one pass.

        Returns:
            float32 [T, vocab_size].
        """
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            str(self.config.graph), options, providers=["CPUExecutionProvider"]
        )
        tokens = np.array([ids], np.int64)
        empty = (1, self.config.num_key_value_heads, 0, self.config.head_size)
        dtype = np.dtype(_KV_DTYPES[self._kv])
        given = {
            theirs: np.zeros(empty, dtype)
            for ours, theirs in self.config.cache_names.items()
            if ours.startswith("past")
        }
        given |= {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
        if self._has_positions:
            given["position_ids"] = np.arange(len(ids), dtype=np.int64)[None]
        logits = session.run(["logits"], given)[0]
        return np.ascontiguousarray(logits[0, :, :vocab_size].astype(np.float32))

    def write(self, max_length: int, directory: Path) -> Path:
        """Write the graph with the package's interface; see `adapt_graph`."""
        return adapt_graph(self.config, max_length, directory)

    def describe(
        self, graph: str, *, vocab_size: int, max_length: int, shares_target_cache: bool
    ) -> EngineEntry:
        """The manifest entry of the engine."""
        recipe, config = self.recipe, self.config
        return EngineEntry(
            graph=graph,
            backend="onnxruntime",
            layout="in_place",
            storage=recipe.storage,
            compute=recipe.compute,
            recipe=recipe.name,
            vocab_size=vocab_size,
            logits_width=self.logits_width,
            max_length=max_length,
            num_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_kv_heads=config.num_key_value_heads,
            head_size=config.head_size,
            kv_dtype=recipe.kv_dtype,
            prefill_chunk=min(256, max_length),
            shares_target_cache=shares_target_cache,
        )
