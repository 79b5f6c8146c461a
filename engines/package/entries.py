"""Records of a manifest (a file, an engine, the tokenizer), validated when constructed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specdec.engines.devices import Device
from specdec.engines.engine import EngineInfo
from specdec.engines.package.build_record import TensorRTEntry
from specdec.engines.package.fields import (
    FieldError,
    array_of,
    check_record,
    choice,
    digest,
    flag,
    integer,
    nullable,
    object_of_paths,
    object_of_text,
    record,
    relative_path,
    text,
)
from specdec.engines.package.strict_json import shown

__all__ = ["EngineEntry", "FileEntry", "NativeEntry", "TokenizerEntry"]

_MAX_TOKENS = 2**24
_MAX_COUNT = 2**16
_MAX_BYTES = 2**63 - 1
_SUFFIXES = {
    "onnxruntime": ".onnx",
    "onnxruntime-tensorrt": ".onnx",
    "tensorrt": ".engine",
    "tensorrt-rtx": ".engine",
}


@dataclass(frozen=True)
class FileEntry:
    """Size in bytes and SHA-256 (64 lower-case hexadecimal digits) of one file.

    Raises:
        PackageError: a field has the wrong type or is out of range.
    """

    size: int = field(metadata=integer(0, _MAX_BYTES))
    sha256: str = field(metadata=digest())

    def __post_init__(self) -> None:
        check_record(self)


@dataclass(frozen=True)
class NativeEntry:
    """The graph of an engine over the native CPU operators, and the operators it needs.

    Raises:
        PackageError: a field has the wrong type or is out of range.
    """

    graph: str = field(metadata=relative_path())
    """Path inside the package, "*.onnx"; it reads the data file of the engine's own graph."""
    operators: int = field(metadata=integer(1, _MAX_COUNT))
    """Version of the operators and of the layouts of their weights."""

    def __post_init__(self) -> None:
        check_record(self)
        if not self.graph.endswith(".onnx"):
            raise FieldError("graph", shown(self.graph), 'a name ending in ".onnx"')


@dataclass(frozen=True)
class EngineEntry:
    """How to run one engine; counts are in tokens, layers, heads or elements.

    Raises:
        PackageError: a field has the wrong type or is out of range, `logits_width` is below
            `vocab_size`, `prefill_chunk` is above `max_length`, the attention heads do not
            divide into the KV heads, or a TensorRT engine lacks its record or another has one.
    """

    graph: str = field(metadata=relative_path())
    """Path inside the package: "*.onnx" for ONNX Runtime, "*.engine" for TensorRT."""
    backend: str = field(metadata=text())
    """"onnxruntime", "onnxruntime-tensorrt", "tensorrt" or "tensorrt-rtx"; others load in
    releases that have them."""
    layout: str = field(metadata=choice("in_place", "concatenated"))
    """"in_place": past and present keys and values are one buffer of `max_length` tokens."""
    storage: str = field(metadata=choice("fp32", "fp16", "bf16", "int8", "int4"))
    """Precision of the weights on disk."""
    compute: str = field(metadata=choice("fp32", "fp16", "bf16", "int8"))
    """Precision of the arithmetic."""
    recipe: str = field(metadata=text())
    """Name of the export's recipe for the weights."""
    vocab_size: int = field(metadata=integer(1, _MAX_TOKENS))
    """Token ids `0 .. vocab_size - 1` are legal."""
    logits_width: int = field(metadata=integer(1, _MAX_TOKENS))
    """Columns of the logits, `vocab_size` and any padding."""
    max_length: int = field(metadata=integer(1, _MAX_TOKENS))
    """Capacity of the KV cache in tokens."""
    num_layers: int = field(metadata=integer(1, _MAX_COUNT))
    num_attention_heads: int = field(metadata=integer(1, _MAX_COUNT))
    num_kv_heads: int = field(metadata=integer(1, _MAX_COUNT))
    head_size: int = field(metadata=integer(1, _MAX_COUNT))
    kv_dtype: str = field(metadata=choice("float32", "float16", "bfloat16"))
    """Element type of the keys and values."""
    prefill_chunk: int = field(metadata=integer(1, _MAX_TOKENS))
    """Tokens per pass while a prompt is read, 1 .. `max_length`."""
    shares_target_cache: bool = field(metadata=flag())
    """The draft can read and write the target's KV cache; false for a target."""
    tensorrt: TensorRTEntry | None = field(default=None, metadata=nullable(record(TensorRTEntry)))
    """What a TensorRT engine was built for; null for the other backends."""
    native: NativeEntry | None = field(default=None, metadata=nullable(record(NativeEntry)))
    """The same engine over the native CPU operators, if it has such a graph."""

    def __post_init__(self) -> None:
        check_record(self)
        suffix = _SUFFIXES.get(self.backend, "")
        if not self.graph.endswith(suffix):
            allowed = f'a name ending in "{suffix}" for {self.backend}'
            raise FieldError("graph", shown(self.graph), allowed)
        if suffix and (suffix == ".engine") != (self.tensorrt is not None):
            got = "null" if self.tensorrt is None else "an object"
            allowed = "an object for the TensorRT backends and null for the others"
            raise FieldError("tensorrt", got, allowed)
        if self.native is not None and (self.backend, self.layout) != ("onnxruntime", "in_place"):
            allowed = 'null, unless backend is "onnxruntime" and layout "in_place"'
            raise FieldError("native", "an object", allowed)
        if self.logits_width < self.vocab_size:
            raise FieldError(
                "logits_width", f"{self.logits_width}", f"{self.vocab_size} (vocab_size) or more"
            )
        if self.prefill_chunk > self.max_length:
            raise FieldError(
                "prefill_chunk", f"{self.prefill_chunk}", f"1 .. {self.max_length} tokens"
            )
        if self.num_attention_heads % self.num_kv_heads:
            raise FieldError(
                "num_kv_heads",
                f"{self.num_kv_heads}",
                f"a divisor of num_attention_heads {self.num_attention_heads}",
            )

    @property
    def kv_cache_bytes(self) -> int:
        """Size of the KV cache."""
        elements = self.num_kv_heads * self.max_length * self.head_size
        return 2 * self.num_layers * elements * (4 if self.kv_dtype == "float32" else 2)

    def info(self, name: str, device: Device) -> EngineInfo:
        """The facts of the engine once it is loaded.

        Args:
            name: "target" or "draft".
            device: where it runs.
        """
        return EngineInfo(
            name=name,
            vocab_size=self.vocab_size,
            logits_width=self.logits_width,
            max_length=self.max_length,
            num_layers=self.num_layers,
            num_attention_heads=self.num_attention_heads,
            num_kv_heads=self.num_kv_heads,
            head_size=self.head_size,
            storage=self.storage,
            compute=self.compute,
            backend=self.backend,
            device=str(device),
        )


@dataclass(frozen=True)
class TokenizerEntry:
    """The tokenizer's files and the ids and texts of its special tokens.

    Raises:
        PackageError: a field has the wrong type or is out of range.
    """

    file: str = field(metadata=relative_path())
    """Path of the `tokenizer.json` inside the package."""
    eos_token_ids: tuple[int, ...] = field(metadata=array_of(integer(0, _MAX_TOKENS - 1)))
    """Ids that end a text; none is legal."""
    chat_template: str | None = field(default=None, metadata=nullable(relative_path()))
    """Path of the chat template (Jinja, UTF-8) inside the package."""
    bos_token_id: int | None = field(default=None, metadata=nullable(integer(0, _MAX_TOKENS - 1)))
    special_tokens: Mapping[str, str] = field(default_factory=dict, metadata=object_of_text())
    """Texts the chat template may name, such as `{"bos_token": "<s>"}`."""
    chat_templates: Mapping[str, str] = field(default_factory=dict, metadata=object_of_paths())
    """Paths of further chat templates by name, such as `tool_use`; never `default`."""

    def __post_init__(self) -> None:
        check_record(self)
        object.__setattr__(self, "eos_token_ids", tuple(self.eos_token_ids))
        object.__setattr__(self, "special_tokens", dict(self.special_tokens))
        object.__setattr__(self, "chat_templates", dict(self.chat_templates))
        if "default" in self.chat_templates:
            allowed = "other names; chat_template is the default"
            raise FieldError("chat_templates", "an object with the key default", allowed)
