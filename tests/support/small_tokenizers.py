"""Small tokenizers of every kind, trained here, and the streaming of ids through them."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from specdec.runtime.text.codec import TextCodec
from specdec.runtime.text.output_text import OutputText

__all__ = ["byte_ids", "make_codecs", "stream", "whole", "words"]

CORPUS = [
    "the quick brown fox jumps over the lazy dog",
    "hello world, hello there; the end",
    "日本語のテキスト 你好世界",
    "naïve café über",
] * 3
BYTES = [f"<0x{value:02X}>" for value in range(256)]


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", special=False), AddedToken("← 左", special=False)])
    return tokenizer


def llama_like() -> Tokenizer:
    """BPE + byte fallback, the first word's space prepended and stripped (Llama 2, Mistral)."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        special_tokens=["<unk>", "<s>", "</s>", *BYTES],
        limit_alphabet=20,
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return bytes_not_special(tokenizer)


def metaspace() -> Tokenizer:
    """Unigram + byte fallback, Metaspace words."""
    letters = [(letter, -8.0) for letter in "▁abcdefghijklmnopqrstuvwxyz,."]
    words = [("▁the", -3.0), ("▁hello", -3.0), ("▁world", -3.0), ("ing", -4.0)]
    special = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
    vocabulary = [*special, *((token, -20.0) for token in BYTES), *letters, *words]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def words() -> Tokenizer:
    """No decoder at all: words joined by spaces."""
    return Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "b": 2, "ab": 3}, unk_token="<unk>"))


def bytes_not_special(tokenizer: Tokenizer) -> Tokenizer:
    """Make only the control tokens special: a trainer marks all the tokens it was given."""
    data = json.loads(tokenizer.to_str())
    control = {"<unk>", "<s>", "</s>"}
    data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] in control]
    return Tokenizer.from_str(json.dumps(data))


MAKERS = {
    "byte_level": byte_level,
    "llama_like": llama_like,
    "metaspace": metaspace,
    "words": words,
}


def make_codecs(folder: Path) -> dict[str, TextCodec]:
    """Return a codec of each kind by its name; the files go into `folder`."""
    found = {}
    for name, make in MAKERS.items():
        path = folder / f"{name}.json"
        make().save(str(path))
        found[name] = TextCodec(path)
    return found


def stream(output: OutputText, ids: list[int]) -> tuple[list[tuple[str, int]], bool]:
    """Push and take one by one; stop at a stop string, finish; return what was taken."""
    taken, stopped = [], False
    for token_id in ids:
        stopped = output.push(token_id)
        taken.append(output.take())
        if stopped:
            break
    output.finish()
    taken.append(output.take())
    return taken, stopped


def whole(codec: TextCodec, ids: list[int], **options: object) -> str:
    """Stream ids and check that the joined stream is the final text; return it."""
    output = OutputText(codec, **options)  # type: ignore[arg-type]
    taken, _ = stream(output, ids)
    assert "".join(text for text, _ in taken) == output.text
    assert sum(count for _, count in taken) == output.num_tokens
    return output.text


def byte_ids(codec: TextCodec, data: bytes) -> list[int]:
    """Spell bytes as byte-fallback tokens: `<0x00>` is id 3 in both tokenizers."""
    assert codec.decode([3 + 0x41]) == "A"
    return [3 + value for value in data]
