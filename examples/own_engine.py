"""Your own engine under specdec's loop: implement five members, hand over your buffers.

    python examples/own_engine.py

The engine here is a bigram model of one sentence whose logits lie in memory of the host (a
ctypes array, where a C++ host would have its tensor). specdec reads them where they lie, and
writes the new ids into an `array` of the host.
"""

from __future__ import annotations

import ctypes
from array import array

import numpy as np
from numpy.typing import NDArray

from specdec.engines import EngineInfo, check_forward
from specdec.runtime import SamplingParams
from specdec.runtime.embed import TokenDecoder

SENTENCE = "she sells sea shells on the sea shore. "
LETTERS = sorted(set(SENTENCE))
MAX_ROWS = 64


class BigramEngine:
    """Scores a letter by how often it followed the last one; keeps its cache as a list."""

    def __init__(self, name: str, sharpness: float) -> None:
        width = len(LETTERS)
        self.info = EngineInfo(
            name=name,
            vocab_size=width,
            logits_width=width,
            max_length=512,
            num_layers=1,
            num_attention_heads=1,
            num_kv_heads=1,
            head_size=1,
            storage="fp32",
            compute="fp32",
            backend="bigram",
            device="cpu",
        )
        pairs = list(zip(SENTENCE, SENTENCE[1:] + SENTENCE[:1], strict=True))
        self.scores = [
            [sharpness * pairs.count((last, letter)) for letter in LETTERS] for last in LETTERS
        ]
        self.memory = (ctypes.c_float * (MAX_ROWS * width))()
        self.cached: list[int] = []

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return len(self.cached)

    def forward(
        self, token_ids: NDArray[np.int64], num_logits: int
    ) -> ctypes.Array[ctypes.c_float]:
        """Append ids; return the last `num_logits` rows of logits, in the host's memory."""
        check_forward(self.info, self.length, token_ids, num_logits)
        self.cached += token_ids[0].tolist()
        width = len(LETTERS)
        for row, token in enumerate(self.cached[self.length - num_logits :]):
            for column, score in enumerate(self.scores[token]):
                self.memory[row * width + column] = score
        return (ctypes.c_float * (num_logits * width)).from_buffer(self.memory)

    def truncate(self, length: int) -> None:
        """Forget every token at `length` and later."""
        del self.cached[length:]

    def close(self) -> None:
        """Nothing to release."""


def main() -> None:
    """Continue a text and print it with the share of drafted letters that were right."""
    prompt = array("i", [LETTERS.index(letter) for letter in "she "])
    out = array("i", [0] * 60)
    target, draft = BigramEngine("target", 2.0), BigramEngine("draft", 1.0)
    with TokenDecoder(target, draft) as decoder:
        params = SamplingParams(max_new_tokens=60, temperature=1.0, seed=3, num_draft_tokens=4)
        outcome = decoder.generate(prompt, out, params)
    text = "".join(LETTERS[token] for token in out[: outcome.num_tokens])
    print(f"she |{text}|")
    print(f"{outcome.stats.acceptance_rate:.0%} of the drafted letters were accepted")


if __name__ == "__main__":
    main()
