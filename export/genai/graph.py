"""Give a GenAI decoder graph the interface of a package's in-place engine, and nothing else.

    attention_mask [1, total]        ->  seqlens_k [1], total_sequence_length [1]
    logits of every row              ->  of the rows in logit_rows, gathered before the head

The nodes that compute stay as they are. What the attention nodes read of the mask is its length,
which the package passes as numbers; the nodes that derived it fall away.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from specdec.export.editing.model import MAX_LENGTH, save_graph
from specdec.export.errors import UnsupportedModelError
from specdec.export.sources.genai_folder import GenaiConfig

__all__ = ["adapt_graph", "read_decoder"]

_ATTENTION = "GroupQueryAttention"
_SEQLENS, _TOTAL = 5, 6
"""Inputs of the attention node that hold the lengths."""
_ATTRIBUTES = {
    *("num_heads", "kv_num_heads", "scale", "local_window_size", "softcap"),
    *("do_rotary", "rotary_interleaved", "smooth_softmax"),
}
"""What may be said of attention: none of these keeps less than every token, or another type."""
_HEADS = ("MatMul", "MatMulNBits", "Gemm")
_AFTER_HEAD = ("Cast", "Mul", "Div", "Tanh", "Add")


def read_decoder(config: GenaiConfig) -> ir.Model:
    """Load the graph of a folder, its weights left on disk.

    Raises:
        UnsupportedModelError: its interface is not that of a decoder with an in-place cache.
    """
    model = ir.load(config.graph)
    graph, name = model.graph, config.name
    known = {"input_ids", "attention_mask", "position_ids", *config.cache_names.values()}
    strange = [value.name for value in graph.inputs if value.name not in known]
    if strange:
        raise UnsupportedModelError(
            f"the graph of {name} has an input {strange[0]!r}; allowed are input_ids, "
            "attention_mask, position_ids and the cache that genai_config.json names"
        )
    attention = [node for node in graph if node.op_type == _ATTENTION]
    if len(attention) != config.num_hidden_layers:
        raise UnsupportedModelError(
            f"the graph of {name} has {len(attention)} {_ATTENTION} nodes for "
            f"{config.num_hidden_layers} layers; make the folder with a GroupQueryAttention graph"
        )
    for node in attention:
        strange = sorted(set(node.attributes) - _ATTRIBUTES)
        if strange:
            raise UnsupportedModelError(
                f"the attention nodes of {name} have {strange[0]}; allowed are a cache of every "
                f"token and {', '.join(sorted(_ATTRIBUTES))}; export from the original weights"
            )
    present = {value.name for value in (*graph.inputs, *graph.outputs)}
    wanted = ("input_ids", "logits", *config.cache_names.values())
    missing = next((value for value in wanted if value not in present), None)
    if missing is not None:
        raise UnsupportedModelError(
            f"the graph of {name} has no {missing!r}; make the folder again"
        )
    return model


def adapt_graph(config: GenaiConfig, max_length: int, directory: Path) -> Path:
    """Write the graph of a folder with the package's interface.

    Returns:
        `plain.onnx` in `directory`, its weights beside it.

    Raises:
        UnsupportedModelError: as `read_decoder`, or the head of the logits is not found.
    """
    model = read_decoder(config)
    graph = model.graph
    _pass_lengths(graph)
    _score_chosen_rows(graph, config.name)
    values = {value.name: value for value in (*graph.inputs, *graph.outputs)}
    cache = ir.Shape([1, config.num_key_value_heads, max_length, config.head_size])
    for ours, theirs in config.cache_names.items():
        values[theirs].name, values[theirs].shape = ours, cache
    RemoveUnusedNodesPass()(model)
    for value in [value for value in graph.inputs if value.name == "attention_mask"]:
        if value.uses():
            raise UnsupportedModelError(
                f"the graph of {config.name} uses its attention_mask for more than its length"
            )
        graph.inputs.remove(value)
    model.metadata_props[MAX_LENGTH] = str(max_length)
    plain = directory / "plain.onnx"
    save_graph(model, plain)
    return plain


def _pass_lengths(graph: ir.Graph) -> None:
    """Feed both lengths of every attention node from inputs of their own."""
    names = ("seqlens_k", "total_sequence_length")
    lengths = [
        ir.Value(name=name, shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.INT32))
        for name in names
    ]
    graph.inputs.extend(lengths)
    for node in graph:
        if node.op_type == _ATTENTION:
            node.replace_input_with(_SEQLENS, lengths[0])
            node.replace_input_with(_TOTAL, lengths[1])


def _score_chosen_rows(graph: ir.Graph, name: str) -> None:
    """Gather the rows of `logit_rows` before the head, and give float32 logits."""
    logits = next(value for value in graph.outputs if value.name == "logits")
    head = next((node for node in _upwards(logits) if node.op_type in _HEADS), None)
    if head is None:
        raise UnsupportedModelError(f"the output head of {name} is not found before its logits")
    rows = ir.Value(
        name="logit_rows", shape=ir.Shape(["scored"]), type=ir.TensorType(ir.DataType.INT64)
    )
    graph.inputs.append(rows)
    hidden = head.inputs[0]
    gather = ir.node("Gather", [hidden, rows], {"axis": 1}, name="specdec/logit_rows")
    gather.outputs[0].name = "specdec/scored"
    graph.insert_before(head, gather)
    head.replace_input_with(0, gather.outputs[0])
    logits.shape = ir.Shape([1, "scored", logits.shape[2]])
    if logits.dtype == ir.DataType.FLOAT:
        return
    logits.name = "specdec/logits"
    cast = ir.node("Cast", [logits], {"to": ir.DataType.FLOAT}, name="specdec/cast_logits")
    wide = cast.outputs[0]
    wide.name, wide.shape, wide.type = "logits", logits.shape, ir.TensorType(ir.DataType.FLOAT)
    graph.append(cast)
    graph.outputs[list(graph.outputs).index(logits)] = wide


def _upwards(value: ir.Value) -> Iterator[ir.Node]:
    """The nodes that make a value, each after the one it feeds, along the first inputs."""
    node = value.producer()
    while node is not None:
        yield node
        if node.op_type not in _AFTER_HEAD or node.inputs[0] is None:
            return
        node = node.inputs[0].producer()
