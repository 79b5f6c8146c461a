"""Deepen an engine of two layers by repeating the second, without a copy of its weights on disk.

A decoder is a chain: embedding, attention 0, then (feed-forward i, attention i + 1) again and
again, feed-forward, head. The subgraph from the residual after one attention to the residual after
the next is cut out of a graph of two layers and repeated. The constants of each copy have names of
their own and the offsets in the weight file of the first one's, so the file
stays small, while a session loads every layer separately: memory and time are those of the
model at its full depth.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

__all__ = ["repeat_layers"]


def repeat_layers(path: Path, num_layers: int) -> None:
    """Rewrite an engine of two layers with `num_layers`.

    Args:
        path: the `.onnx` file of a model whose attention is added to the residual without
            anything but its output projection in between, as in Llama; its weights lie beside it.
        num_layers: 2 or fewer leave the engine as it is.
    """
    if num_layers <= 2:
        return
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    first, second = (_residual(graph, layer) for layer in (0, 1))
    before = _ancestors(graph, first)
    link = [index for index in _ancestors(graph, second) if index not in before]
    link.sort()
    nodes = [graph.node[index] for index in link]
    end = next(i for i, node in enumerate(graph.node) if second in node.output) + 1
    for node in graph.node[end:]:
        _rename(node.input, {second: f"{second}.{num_layers - 1}"})
    own = _own_names(graph, set(link))
    copies: list[onnx.NodeProto] = []
    for layer in range(2, num_layers):
        names = {name: _layered(name, layer) for name in own}
        names[first] = second if layer == 2 else f"{second}.{layer - 1}"
        for node in nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = f"{node.name}.{layer}"
            _rename(copy.input, names)
            _rename(copy.output, names)
            copies.append(copy)
        for entries in (graph.input, graph.output, graph.initializer, graph.value_info):
            _copy_named(entries, own, names)
    ordered = [*graph.node[:end], *copies, *graph.node[end:]]
    del graph.node[:]
    graph.node.extend(ordered)
    onnx.save(model, path)


def _layered(name: str, layer: int) -> str:
    """The name of layer 1's value in a further layer; caches are numbered by contract."""
    for prefix in ("past_key_values.", "present."):
        if name.startswith(f"{prefix}1."):
            return f"{prefix}{layer}.{name[len(prefix) + 2 :]}"
    return f"{name}.{layer}"


def _residual(graph: onnx.GraphProto, layer: int) -> str:
    """The sum of the residual stream and a layer's attention."""
    past = f"past_key_values.{layer}.key"
    reached = {node.output[0] for node in graph.node if past in node.input}
    for node in graph.node:
        if reached & set(node.input):
            if node.op_type == "Add":
                return str(node.output[0])
            reached.update(node.output)
    raise AssertionError(f"no residual after the attention of layer {layer}")


def _ancestors(graph: onnx.GraphProto, value: str) -> set[int]:
    """Indices of the nodes that `value` is computed by."""
    makers = {output: index for index, node in enumerate(graph.node) for output in node.output}
    found: set[int] = set()
    pending = [value]
    while pending:
        index = makers.get(pending.pop())
        if index is not None and index not in found:
            found.add(index)
            pending.extend(graph.node[index].input)
    return found


def _own_names(graph: onnx.GraphProto, link: set[int]) -> set[str]:
    """Values that the link makes, and inputs and constants that nothing else reads."""
    made = {name for index in link for name in graph.node[index].output if name}
    read = {name for index in link for name in graph.node[index].input if name}
    elsewhere = {
        name for index, node in enumerate(graph.node) if index not in link for name in node.input
    }
    makers = {name for node in graph.node for name in node.output}
    return made | (read - elsewhere - makers)


def _rename(values: Any, names: dict[str, str]) -> None:
    renamed = [names.get(name, name) for name in values]
    del values[:]
    values.extend(renamed)


def _copy_named(entries: Any, own: set[str], names: dict[str, str]) -> None:
    for entry in [entry for entry in entries if entry.name in own]:
        copy = type(entry)()
        copy.CopyFrom(entry)
        copy.name = names[entry.name]
        entries.append(copy)
