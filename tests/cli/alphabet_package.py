"""A real package whose target recites the alphabet, so every answer is known beforehand.

Tokens are bytes (a byte-level tokenizer without merges) and one end token. The target's logits
depend on the last token alone: each letter is followed by the next, `z` by the end token, the
end token by `a`, and "ä" by "ö", a character of two tokens. The draft agrees but for `m`.
The chat template writes the contents of the messages one after the other.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from specdec.engines import EngineEntry, Manifest, TokenizerEntry, inventory, write_manifest
from specdec.runtime.text.codec import TextCodec

END = 256
VOCAB = 257
CAPACITY = 300_000
HEADS, HEAD_SIZE = 1, 8
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def write_alphabet_package(root: Path, chat_template: bool = True) -> Path:
    """Write the package and return its directory."""
    root.mkdir(parents=True)
    _write_tokenizer(root / "tokenizer.json")
    codec = TextCodec(root / "tokenizer.json")
    successors = _successors(codec)
    _write_graph(root / "target.onnx", successors)
    _write_graph(root / "draft.onnx", {**successors, codec.encode("m")[0]: 0})
    if chat_template:
        (root / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    manifest = Manifest(
        target=_entry("target.onnx", shares=False),
        draft=_entry("draft.onnx", shares=True),
        tokenizer=TokenizerEntry(
            file="tokenizer.json",
            eos_token_ids=(END,),
            chat_template="chat_template.jinja" if chat_template else None,
            bos_token_id=None,
            special_tokens={"eos_token": "<end>"},
        ),
        files=inventory(root),
        specdec_version="0.1.0",
        source={},
        checks={},
        costs={},
    )
    write_manifest(root, manifest)
    return root


def _write_tokenizer(path: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(path))


def _successors(codec: TextCodec) -> dict[int, int]:
    """Return {token: the token the target puts after it}."""
    letters = codec.encode("abcdefghijklmnopqrstuvwxyz")
    after = dict(itertools.pairwise(letters))
    after[letters[-1]] = END
    after[END] = letters[0]
    lead, first = codec.encode("ä")
    second = codec.encode("ö")[1]
    return {**after, first: lead, lead: second, second: letters[0]}


def _write_graph(path: Path, successors: dict[int, int]) -> None:
    """Write logits[row] = table[token of the row] beside one cached attention node."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    table = np.zeros((VOCAB, VOCAB), np.float32)
    for token, following in successors.items():
        table[token, following] = 9.0
    rows = np.ones((VOCAB, HEAD_SIZE), np.float32)
    cache = [1, HEADS, CAPACITY, HEAD_SIZE]
    value, node = helper.make_tensor_value_info, helper.make_node
    past = ["past_key_values.0.key", "past_key_values.0.value"]
    present = ["present.0.key", "present.0.value"]
    lengths = ["seqlens_k", "total_sequence_length"]
    graph = helper.make_graph(
        [
            node("Gather", ["rows", "input_ids"], ["row"]),
            node(
                "GroupQueryAttention",
                ["row", "row", "row", *past, *lengths],
                ["attended", *present],
                domain="com.microsoft",
                num_heads=HEADS,
                kv_num_heads=HEADS,
            ),
            node("Gather", ["table", "input_ids"], ["scores"]),
            node("Gather", ["scores", "logit_rows"], ["logits"], axis=1),
        ],
        "alphabet",
        [
            value("input_ids", TensorProto.INT64, [1, "rows"]),
            *(value(name, TensorProto.INT32, [1]) for name in lengths),
            value("logit_rows", TensorProto.INT64, ["scored"]),
            *(value(name, TensorProto.FLOAT, cache) for name in past),
        ],
        [
            value("logits", TensorProto.FLOAT, [1, "scored", VOCAB]),
            *(value(name, TensorProto.FLOAT, cache) for name in present),
        ],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(rows, "rows")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save_model(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))


def _entry(graph: str, shares: bool) -> EngineEntry:
    fields: dict[str, Any] = {
        "backend": "onnxruntime",
        "layout": "in_place",
        "storage": "fp32",
        "compute": "fp32",
        "recipe": "fp32",
        "vocab_size": VOCAB,
        "logits_width": VOCAB,
        "max_length": CAPACITY,
        "num_layers": 1,
        "num_attention_heads": HEADS,
        "num_kv_heads": HEADS,
        "head_size": HEAD_SIZE,
        "kv_dtype": "float32",
        "prefill_chunk": 256,
    }
    return EngineEntry(graph=graph, shares_target_cache=shares, **fields)
