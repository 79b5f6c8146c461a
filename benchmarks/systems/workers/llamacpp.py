"""llama.cpp through llama-cpp-python. Models: "f16", "f32" (plain), and the same with "+q8_0".

The Python package has no speculation with a draft model, so this runs llama.cpp's own scheme
(`examples/speculative-simple`) over its C functions: the draft proposes its most probable
tokens, the target scores them in one batch, and a token is kept while the one sampled from the
target equals it. Sampling is llama.cpp's, over the full vocabulary.
"""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path

import llama_cpp
import protocol

CONTEXT = 4096
CONVERTED = {"f32": llama_cpp.LLAMA_FTYPE_ALL_F32, "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0}
QUIET = llama_cpp.llama_log_callback(lambda level, text, data: None)


class Model:
    """One model with its KV cache, and the length of what is in it."""

    def __init__(self, path: Path, threads: int) -> None:
        params = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = context.n_batch = CONTEXT
        context.n_threads = context.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(CONTEXT, 0, 1)
        self.length = 0

    def forward(self, tokens: list[int], num_logits: int) -> None:
        """Append tokens; the last `num_logits` rows get logits, numbered from 0 of the batch."""
        batch, count = self.batch, len(tokens)
        batch.n_tokens = count
        for row, token in enumerate(tokens):
            batch.token[row] = token
            batch.pos[row] = self.length + row
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = 0
            batch.logits[row] = row >= count - num_logits
        if llama_cpp.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")
        self.length += count

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens."""
        llama_cpp.llama_memory_seq_rm(self.memory, 0, length, -1)
        self.length = length


def prepare(settings: protocol.Settings) -> None:
    """Write the F16 file again as F32 and as Q8_0."""
    llama_cpp.llama_log_set(QUIET, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    for name, kind in CONVERTED.items():
        convert = partial(_convert, settings.weights / "f16.gguf", kind=kind)
        protocol.written_once(settings.models / f"{name}.gguf", convert)


def load(settings: protocol.Settings, model: str) -> protocol.Generate:
    """Load a target, and the draft after a plus sign."""
    llama_cpp.llama_log_set(QUIET, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    folders = {"f16": settings.weights, "f32": settings.models, "q8_0": settings.models}
    models = [Model(folders[name] / f"{name}.gguf", settings.threads) for name in model.split("+")]
    target, draft = models[0], models[1] if len(models) > 1 else None

    def generate(request: protocol.Request) -> list[int]:
        chosen = _sampler(request.temperature, request.seed)
        greedy = _sampler(0.0, 0)
        text = list(request.prompt)
        wanted = len(text) + request.max_new_tokens
        for one in models:
            one.truncate(0)
            one.forward(text[:-1], 0)
        while len(text) < wanted and text[len(request.prompt) :][-1:] != [protocol.END_TOKEN]:
            room = wanted - len(text) - 1
            count = min(int(request.num_draft_tokens), room)
            drafted = _draft(draft, greedy, text, count) if draft is not None and count else []
            text += _verify(target, chosen, text, drafted)
        for sampler in (chosen, greedy):
            llama_cpp.llama_sampler_free(sampler)
        return text[len(request.prompt) :]

    return generate


def _draft(draft: Model, greedy: object, text: list[int], count: int) -> list[int]:
    """Up to `count` most probable tokens after `text`."""
    draft.truncate(min(draft.length, len(text) - 1))
    feed = text[draft.length :]
    drafted: list[int] = []
    while len(drafted) < count:
        draft.forward(feed, 1)
        token = llama_cpp.llama_sampler_sample(greedy, draft.context, -1)
        drafted.append(token)
        if token == protocol.END_TOKEN:
            break
        feed = [token]
    return drafted


def _verify(target: Model, sampler: object, text: list[int], drafted: list[int]) -> list[int]:
    """Tokens sampled from the target while they equal the draft's, and the first that differs."""
    target.forward([text[-1], *drafted], len(drafted) + 1)
    committed = []
    for row in range(len(drafted) + 1):
        committed.append(llama_cpp.llama_sampler_sample(sampler, target.context, row))
        if drafted[row : row + 1] != committed[-1:] or committed[-1] == protocol.END_TOKEN:
            break
    target.truncate(len(text) + len(committed) - 1)
    return committed


def _sampler(temperature: float, seed: int) -> object:
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    if temperature > 0:
        llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_temp(temperature))
        llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_dist(seed))
    else:
        llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_greedy())
    return chain


def _convert(source: Path, out: Path, kind: int) -> None:
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = kind
    if llama_cpp.llama_model_quantize(str(source).encode(), str(out).encode(), params):
        raise RuntimeError(f"llama.cpp could not convert {source.name}")


if __name__ == "__main__":
    protocol.run(prepare, load, ["llama-cpp-python"])
