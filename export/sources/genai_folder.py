"""Read a folder of ONNX Runtime GenAI: `genai_config.json` and a decoder graph with a KV cache.

Its weights are in the precision they were given, often quantized. The engine is then what the
folder's own runtime runs, and a package made from it is lossless to that engine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.export.errors import SourceError, UnsupportedModelError

__all__ = ["CONFIG", "GenaiConfig", "is_genai_folder", "read_genai_config"]

CONFIG = "genai_config.json"
_ONLY_DECODERS = ("encoder", "vision", "speech", "embedding")


@dataclass(frozen=True)
class GenaiConfig:
    """The decoder that a `genai_config.json` describes."""

    name: str
    """Of the source, for messages."""
    graph: Path
    model_type: str
    vocab_size: int
    max_position_embeddings: int
    """Context in tokens."""
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_size: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None

    def get_text_config(self) -> GenaiConfig:
        """The part about text: all of it."""
        return self

    @property
    def cache_names(self) -> dict[str, str]:
        """The folder's names of cache inputs and outputs, by the package's."""
        named = {
            "past_key_values.{}.key": self.inputs.get("past_key_names"),
            "past_key_values.{}.value": self.inputs.get("past_value_names"),
            "present.{}.key": self.outputs.get("present_key_names"),
            "present.{}.value": self.outputs.get("present_value_names"),
        }
        return {
            ours.format(layer): theirs % layer
            for ours, theirs in named.items()
            for layer in range(self.num_hidden_layers)
            if theirs is not None
        }


def is_genai_folder(path: Path) -> bool:
    """Whether a folder is one of ONNX Runtime GenAI."""
    return (path / CONFIG).is_file()


def read_genai_config(folder: Path, name: str) -> GenaiConfig:
    """Read and check the configuration of a folder.

    Raises:
        SourceError: the file is malformed, or the graph is missing; the message names the key.
        UnsupportedModelError: it describes more than a decoder, or a pipeline of graphs.
    """
    try:
        model = json.loads((folder / CONFIG).read_text(encoding="utf-8-sig"))["model"]
        decoder = model["decoder"]
        for part in _ONLY_DECODERS:
            if part in model:
                raise UnsupportedModelError(
                    f"{name} has a model.{part} in {CONFIG}; allowed are folders of one decoder"
                )
        if "pipeline" in decoder:
            raise UnsupportedModelError(
                f"{name} is a pipeline of several graphs; allowed are folders of one decoder"
            )
        if "sliding_window" in decoder:
            raise UnsupportedModelError(
                f"{name} has a sliding_window in {CONFIG}, a cache of the last tokens alone, which "
                "rejected tokens cannot be taken back from; export from the original weights"
            )
        ends = model.get("eos_token_id")
        found = GenaiConfig(
            name=name,
            graph=folder / str(decoder["filename"]),
            model_type=str(model["type"]),
            vocab_size=_count(model, "vocab_size"),
            max_position_embeddings=_count(model, "context_length"),
            num_hidden_layers=_count(decoder, "num_hidden_layers"),
            num_attention_heads=_count(decoder, "num_attention_heads"),
            num_key_value_heads=_count(decoder, "num_key_value_heads"),
            head_size=_count(decoder, "head_size"),
            inputs=dict(decoder["inputs"]),
            outputs=dict(decoder["outputs"]),
            eos_token_ids=tuple(ends if isinstance(ends, list) else [] if ends is None else [ends]),
            bos_token_id=model.get("bos_token_id"),
        )
    except (OSError, ValueError, TypeError) as error:
        raise SourceError(f"{folder / CONFIG} cannot be read ({error})") from error
    except KeyError as error:
        raise SourceError(
            f"{folder / CONFIG} lacks the key {error}; make the folder again"
        ) from None
    if found.graph.parent != folder or not found.graph.is_file():
        raise SourceError(f"{folder} lacks the graph {found.graph.name} that {CONFIG} names")
    return found


def _count(holder: dict[str, Any], key: str) -> int:
    value = holder[key]
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{key} is {value!r}; allowed is an integer of 1 or more")
    return value
