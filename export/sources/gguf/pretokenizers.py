r"""How the byte-level tokenizers of GGUF files cut a text into words, by `tokenizer.ggml.pre`.

The names are llama.cpp's (`llama-vocab.cpp`), the patterns those of the models' own
`tokenizer.json`. Several patterns are applied one after another, each to the pieces the one before
left. A wrong pattern gives ids the model never saw (`1234567` as 12·34·5·67 instead of
12·3·45·6·7), so that names which are not listed are refused.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PRETOKENIZERS", "Pretokenizer"]

_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+|"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _ENGLISH + _WORD + r"\p{N}{1,3}" + _TAIL
_QWEN2 = _ENGLISH + _WORD + r"\p{N}" + _TAIL
_QWEN35 = (
    _ENGLISH + r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    + _CASED_TAIL
)
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SUFFIX}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SUFFIX}|\p{{N}}{{1,3}}" + _CASED_TAIL
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")
_DIGITS_APART = (r"\p{N}", _GPT2)


@dataclass(frozen=True)
class Pretokenizer:
    """One way to cut a text."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    """Whether a word that is a token is taken whole, whatever the merges say."""
    adds_bos: bool = False
    """Whether a text starts with BOS where the file does not say."""
    composes: bool = False
    """Whether the text is normalized to NFC first."""


def _named(pretokenizer: Pretokenizer, *names: str) -> dict[str, Pretokenizer]:
    return dict.fromkeys(names, pretokenizer)


PRETOKENIZERS: dict[str, Pretokenizer] = {
    **_named(Pretokenizer(_DEFAULT), "default"),
    **_named(
        Pretokenizer((_LLAMA3,), whole_words=True, adds_bos=True),
        *("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral"),
    ),
    **_named(Pretokenizer((_LLAMA3,)), "dbrx", "smaug-bpe"),
    **_named(Pretokenizer((_LLAMA3,), whole_words=True), "glm4"),
    **_named(Pretokenizer((_GPT2,)), "gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "mellum"),
    **_named(Pretokenizer(_DIGITS_APART), "smollm", "starcoder", "refact", "codeshell", "exaone"),
    **_named(Pretokenizer(_DIGITS_APART), "minerva-7b"),
    **_named(Pretokenizer((_QWEN2,), composes=True), "qwen2"),
    **_named(Pretokenizer((_QWEN35,), composes=True), "qwen35"),
    **_named(Pretokenizer((_QWEN2,)), "stablelm2", "deepseek-r1-qwen", "megrez"),
    **_named(Pretokenizer((_TEKKEN,), whole_words=True, adds_bos=True), "tekken"),
    **_named(Pretokenizer((_GPT4O,)), "gpt-4o", "llama4"),
    **_named(Pretokenizer(_DEEPSEEK3), "deepseek-v3"),
    **_named(Pretokenizer(_FALCON), "falcon"),
}
"""By the value of `tokenizer.ggml.pre`."""
