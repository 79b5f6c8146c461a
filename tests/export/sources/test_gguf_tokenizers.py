"""The tokenizer of a GGUF file gives the ids that its author's tokenizer gives."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import gguf
import pytest
import sentencepiece
from tokenizers import Tokenizer
from transformers.convert_slow_tokenizer import Qwen2Converter

from specdec.export.errors import SourceError
from specdec.export.sources.gguf.parts import GgufModel
from specdec.export.sources.gguf.tokenizer import gguf_tokenizer
from specdec.export.sources.source import load_config, resolve_source
from specdec.export.sources.tokenizers import SourceTokenizer, load_tokenizer
from tests.export.sources.gguf_files import tokenizer_keys, write_gguf
from tests.export.tiny_models import make_model, write_tokenizer
from tests.support.small_tokenizers import CORPUS

TEXTS = [
    "hello <tool>x",
    "The quick brown fox, isn't it?  Two  spaces\n\n\tand tabs",
    "日本語のテキスト ← 左 naïve café",
    "</s>hello<s> 1234567 3.14",
    "emoji 👩‍🚀 and e\u0301",
    "",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(path)
    return path


def built(keys: dict[str, Any]) -> Tokenizer:
    """The tokenizer of a file with these keys."""
    return gguf_tokenizer(GgufModel(Path("model.gguf"), _arrays(keys), {}, 1))


def _arrays(keys: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    numbers = ("tokenizer.ggml.token_type", "tokenizer.ggml.scores")
    return {k: np.array(v) if k in numbers else v for k, v in keys.items() if v is not None}


def loaded(path: Path) -> SourceTokenizer:
    source = resolve_source(str(path))
    return load_tokenizer(source, load_config(source))


def test_it_gives_the_ids_of_the_folder(folder: Path) -> None:
    ours, theirs = (
        built(tokenizer_keys(folder)),
        Tokenizer.from_file(str(folder / "tokenizer.json")),
    )
    assert ours.get_vocab() == theirs.get_vocab()
    for text in TEXTS:
        ids = theirs.encode(text).ids
        assert ours.encode(text).ids == ids
        assert ours.decode(ids) == theirs.decode(ids)
        assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(
            ids, skip_special_tokens=False
        )


def test_types_of_tokens_bos_and_several_ends(folder: Path, tmp_path: Path) -> None:
    extra = {"tokenizer.ggml.eot_token_id": 331, "tokenizer.chat_template": "{{ messages }}"}
    path = tmp_path / "model.gguf"
    found = loaded(write_gguf(path, make_model("llama"), tokenizer_keys(folder), extra=extra))
    assert found.backend.encode("hello <tool>x").ids == [266, 222, 330, 89]
    assert found.eos_token_ids == (1, 331)
    assert found.bos_token_id == 0
    assert found.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert found.chat_template == "{{ messages }}"
    assert found.size == 332


def test_bos_and_eos_are_added_where_the_file_says_so(folder: Path) -> None:
    keys = tokenizer_keys(folder)
    added = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    assert built(keys | added).encode("hello").ids == [0, 266, 1]
    assert built(keys).encode("hello").ids == [266]
    silent = keys | {"tokenizer.ggml.add_bos_token": None}
    assert built(silent).encode("hello").ids == [266]
    assert built(silent | {"tokenizer.ggml.pre": "llama-bpe"}).encode("hello").ids == [0, 266]


def test_ids_that_pad_the_table_are_no_tokens(folder: Path) -> None:
    keys = tokenizer_keys(folder)
    keys["tokenizer.ggml.tokens"] = [*keys["tokenizer.ggml.tokens"], "[PAD332]"]
    keys["tokenizer.ggml.token_type"] = [*keys["tokenizer.ggml.token_type"], 5]
    assert max(built(keys).get_vocab().values()) == 331


def numbers(pre: str) -> list[str]:
    """How `1234567` is cut by a vocabulary that joins 12, 34, 45 and 67."""
    joined = ["12", "34", "45", "67"]
    tokens = [*"0123456789", *joined]
    keys = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in joined],
        "tokenizer.ggml.add_bos_token": False,
    }
    return list(built(keys).encode("1234567").tokens)


def test_the_named_pretokenizer_cuts_the_text() -> None:
    assert numbers("gpt-2") == ["12", "34", "5", "67"]
    assert numbers("llama-bpe") == ["12", "3", "45", "6", "7"]
    assert numbers("qwen2") == ["1", "2", "3", "4", "5", "6", "7"]
    assert numbers("smollm") == ["1", "2", "3", "4", "5", "6", "7"]


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def test_qwen_is_cut_as_transformers_cuts_it(folder: Path) -> None:
    theirs = Qwen2Converter(None).converted({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
    ours = built(tokenizer_keys(folder) | {"tokenizer.ggml.pre": "qwen2"})
    for text in TEXTS:
        assert pieces(ours, text) == pieces(theirs, text)
    assert ours.normalizer.normalize_str("e\u0301") == theirs.normalizer.normalize_str("e\u0301")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokenizer.ggml.pre": "klingon"}, "the pre-tokenizer 'klingon'"),
        ({"tokenizer.ggml.pre": None}, "names no pre-tokenizer"),
        ({"tokenizer.ggml.model": "t5"}, "tokenizer.ggml.model is 't5'"),
        ({"tokenizer.ggml.merges": None}, "no tokenizer.ggml.merges"),
        (
            {"tokenizer.ggml.tokens": ["a", "a"], "tokenizer.ggml.token_type": [1, 1]},
            "'a' has the ids 0 and 1",
        ),
        ({"tokenizer.ggml.token_type": [1, 1]}, "2 entries for 332 tokens"),
        ({"tokenizer.ggml.eos_token_id": 332}, "eos_token_id is 332"),
        (
            {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": None},
            "adds a BOS token",
        ),
        ({"tokenizer.ggml.add_sep_token": True}, "add_sep_token is set"),
        ({"tokenizer.ggml.surprise": 1}, "tokenizer.ggml.surprise is set"),
        ({"tokenizer.ggml.merges": ["q zz"]}, "cannot be built"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    folder: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(SourceError, match=words) as caught:
        built(tokenizer_keys(folder) | change)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module", params=[True, False], ids=["prefix", "plain"])
def piece_model(request: pytest.FixtureRequest) -> sentencepiece.SentencePieceProcessor:
    """A SentencePiece BPE model with byte fallback, trained here."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 4),
        model_writer=out,
        model_type="bpe",
        vocab_size=380,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=request.param,
        user_defined_symbols=["<tool>"],
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    model.prefix = request.param
    return model


def piece_keys(model: sentencepiece.SentencePieceProcessor) -> dict[str, Any]:
    kinds = []
    for index in range(model.vocab_size()):
        kind = gguf.TokenType.NORMAL
        if model.is_unknown(index):
            kind = gguf.TokenType.UNKNOWN
        elif model.is_control(index):
            kind = gguf.TokenType.CONTROL
        elif model.is_byte(index):
            kind = gguf.TokenType.BYTE
        elif model.id_to_piece(index) == "<tool>":
            kind = gguf.TokenType.USER_DEFINED
        kinds.append(int(kind))
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [model.id_to_piece(i) for i in range(model.vocab_size())],
        "tokenizer.ggml.scores": [model.get_score(i) for i in range(model.vocab_size())],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": model.bos_id(),
        "tokenizer.ggml.eos_token_id": model.eos_id(),
        "tokenizer.ggml.unknown_token_id": model.unk_id(),
        "tokenizer.ggml.add_space_prefix": model.prefix,
    }


def test_sentencepiece_scores_give_its_ids(
    piece_model: sentencepiece.SentencePieceProcessor,
) -> None:
    ours = built(piece_keys(piece_model))
    bos = piece_model.bos_id()
    texts = [
        "hello world, hello there; the end",
        "the quick brown fox jumps over",
        "unseen zebras 1234 and  two spaces",
        "日本語のテキスト 你好世界 👩‍🚀",
        " leading",
        "new\nline\ttab",
    ]
    for text in texts:
        ids = piece_model.encode(text)
        assert ours.encode(text).ids == [bos, *ids]
        assert ours.decode(ids) == piece_model.decode(ids)
    tool = piece_model.piece_to_id("<tool>")
    assert tool in ours.encode("hello<tool>").ids
    silent = built(piece_keys(piece_model) | {"tokenizer.ggml.add_bos_token": False})
    assert silent.encode(texts[0]).ids == piece_model.encode(texts[0])
