"""The demo model's weights for everything that is measured beside a package.

They are rounded to FP16, which is what specdec's target stores: once as a Hugging Face folder,
once as a GGUF file, kept under a cache folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from specdec.export.sources.source import load_config, resolve_source
from specdec.export.sources.tokenizers import load_tokenizer
from specdec.export.sources.weights import load_model

__all__ = ["default_cache", "write_folder", "write_weights"]


def default_cache() -> Path:
    """Where environments and models are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "specdec-benchmarks"


def write_weights(cache: Path) -> None:
    """Write `weights/hf` and `weights/f16.gguf`, unless they are there."""
    write_folder(cache)
    out = cache / "weights" / "f16.gguf"
    if not out.exists():
        source = resolve_source("demo")
        assert source.gguf_file is not None
        partial = out.with_suffix(".partial")
        _write_half_gguf(Path(source.location) / source.gguf_file, partial)
        partial.rename(out)


def write_folder(cache: Path) -> Path:
    """Write the demo model as a Hugging Face folder, unless it is there; return its path."""
    from transformers import PreTrainedTokenizerFast

    folder = cache / "weights" / "hf"
    if not folder.exists():
        source = resolve_source("demo")
        partial = folder.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        load_model(source).half().save_pretrained(partial)
        found = load_tokenizer(source, load_config(source))
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=found.backend,
            chat_template=found.chat_template,
            **found.special_tokens,
        )
        tokenizer.save_pretrained(partial)
        partial.rename(folder)
    return folder


def _write_half_gguf(source: Path, out: Path) -> None:
    """The same GGUF file with its matrices in FP16 and its vectors in FP32."""
    import gguf
    import numpy as np

    reader = gguf.GGUFReader(source)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    writer = gguf.GGUFWriter(out, architecture)
    written = (gguf.Keys.General.ARCHITECTURE, gguf.Keys.General.FILE_TYPE)
    for name, field in reader.fields.items():
        if name in written or name.startswith("GGUF."):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, inner)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(np.float16 if values.ndim > 1 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
