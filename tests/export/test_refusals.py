"""What cannot be exported is refused in one line that says why, and leaves no file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from specdec.engines.errors import SpecdecError
from specdec.export import ExportError
from specdec.export.errors import (
    ExportOptionError,
    SourceError,
    TokenizerMismatchError,
    UnsupportedModelError,
)
from tests.export.exporting import export
from tests.export.tiny_models import write_model, write_tokenizer

TINY = {"vocab_size": 340, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("llama") / "source", "llama")


def refuse(source: Path | str, out: Path, error: type[SpecdecError], **options: Any) -> str:
    """Export and return the message; nothing may change beside `out`."""
    before = contents(out.parent) if out.parent.is_dir() else None
    with pytest.raises(error) as caught:
        export(Path(source), out, **options)
    assert type(caught.value) is error
    after = contents(out.parent) if out.parent.is_dir() else None
    assert after == before
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    return message


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def config_only(folder: Path, config: Any, **changes: Any) -> Path:
    """A folder with a configuration, a tokenizer and weights that nothing should read."""
    folder.mkdir()
    data = {**config.to_dict(), **changes}
    (folder / "config.json").write_text(json.dumps(data))
    (folder / "model.safetensors").write_bytes(b"not read")
    write_tokenizer(folder)
    return folder


def no_config(folder: Path) -> Path:
    folder.mkdir()
    return folder


def no_config_but_gguf(folder: Path) -> Path:
    folder.mkdir()
    (folder / "model-q4.gguf").write_bytes(b"GGUF")
    return folder


def broken_config(folder: Path) -> Path:
    config_only(folder, transformers.LlamaConfig(**TINY))
    (folder / "config.json").write_text('{"model_type": "llama", ')
    return folder


def no_weights(folder: Path) -> Path:
    config_only(folder, transformers.LlamaConfig(**TINY))
    (folder / "model.safetensors").unlink()
    return folder


def onnx_only(folder: Path) -> Path:
    (no_weights(folder) / "model.onnx").write_bytes(b"")
    return folder


def adapter_only(folder: Path) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")
    return folder


def torn_weights(folder: Path) -> Path:
    return config_only(folder, transformers.LlamaConfig(**TINY))


def plain_file(path: Path) -> Path:
    path.write_text("text")
    return path


def broken_gguf(folder: Path) -> Path:
    path = folder.with_suffix(".gguf")
    path.write_bytes(b"not a GGUF file at all" * 10)
    return path


def package(folder: Path) -> Path:
    folder.mkdir()
    (folder / "specdec.json").write_text("{}")
    return folder


def no_tokenizer(folder: Path) -> Path:
    config_only(folder, transformers.LlamaConfig(**TINY))
    for path in folder.glob("*token*"):
        path.unlink()
    return folder


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path, "there is no folder"),
        (lambda path: path.with_suffix(".gguf"), "there is no file"),
        (plain_file, "not a .gguf file"),
        (no_config, "has no config.json"),
        (no_config_but_gguf, "name the file: "),
        (broken_config, "is not JSON"),
        (no_weights, "has no weights"),
        (onnx_only, "export from the original weights"),
        (adapter_only, "merge it into its base model"),
        (package, "is a specdec package already"),
        (no_tokenizer, "the tokenizer of "),
        (torn_weights, "the weights of "),
        (broken_gguf, "cannot be read"),
    ],
)
def test_a_source_that_cannot_be_read(
    make: Callable[[Path], Path], words: str, tmp_path: Path
) -> None:
    source = make(tmp_path / "source")
    (tmp_path / "beside").mkdir()
    assert words in refuse(source, tmp_path / "beside" / "package", SourceError)


@pytest.mark.parametrize(
    ("config", "changes", "words"),
    [
        (transformers.T5Config(vocab_size=340), {}, "encoder-decoder model (t5)"),
        (transformers.BertConfig(**TINY), {"is_decoder": False}, "'bert'"),
        (transformers.MambaConfig(vocab_size=340), {}, "'mamba'"),
        (transformers.CTRLConfig(vocab_size=340), {}, "'ctrl'"),
        (
            transformers.LlamaConfig(**TINY),
            {"quantization_config": {"quant_method": "gptq", "bits": 4}},
            "is quantized already",
        ),
    ],
)
def test_a_model_of_another_kind(
    config: Any, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    source = config_only(tmp_path / "source", config, **changes)
    (tmp_path / "beside").mkdir()
    message = refuse(source, tmp_path / "beside" / "package", UnsupportedModelError)
    assert words in message


def test_remote_code_is_not_run_unasked(tmp_path: Path) -> None:
    source = config_only(
        tmp_path / "source",
        transformers.LlamaConfig(**TINY),
        model_type="internlm2",
        auto_map={
            "AutoConfig": "configuration.Config",
            "AutoModelForCausalLM": "modeling.Model",
        },
    )
    (source / "configuration.py").write_text("raise SystemExit('this ran')")
    (tmp_path / "beside").mkdir()
    assert "--trust-remote-code" in refuse(source, tmp_path / "beside" / "package", SourceError)


def test_another_tokenizer_is_named_by_its_first_difference(llama: Path, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    shutil.copytree(llama, draft)
    text = (draft / "tokenizer.json").read_text(encoding="utf-8")
    assert text.count("← 左") == 1
    (draft / "tokenizer.json").write_text(text.replace("← 左", "← 右"), encoding="utf-8")
    (tmp_path / "beside").mkdir()
    message = refuse(llama, tmp_path / "beside" / "package", TokenizerMismatchError, draft=draft)
    assert 'id 331 is "← 左" in the target and "← 右" in the draft' in message


def test_a_full_disk(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 1000))
    assert ", but 1.0 kB are free; free some" in refuse(llama, tmp_path / "package", ExportError)


@pytest.mark.parametrize("length", [257, 10**9])
def test_more_context_than_the_model_has(llama: Path, tmp_path: Path, length: int) -> None:
    message = refuse(llama, tmp_path / "package", ExportOptionError, max_length=length)
    assert f"{length}" in message
    assert "at most 256" in message


def test_longrope_past_its_original_context(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", "phi3-longrope")
    (tmp_path / "beside").mkdir()
    out = tmp_path / "beside" / "package"
    assert "at most 64" in refuse(source, out, ExportOptionError, max_length=65)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("file", "is not a directory"),
        ("folder", "is not a specdec package"),
        ("package", "--overwrite"),
        ("missing/package", "there is no directory"),
        ("link", "is not a directory"),
    ],
)
def test_a_destination_that_is_taken(llama: Path, tmp_path: Path, place: str, words: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "note.txt").write_text("mine")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "specdec.json").write_text("{}")
    (tmp_path / "link").symlink_to("folder")
    assert words in refuse(llama, tmp_path / place, ExportOptionError)
    if place == "file":
        assert words in refuse(llama, tmp_path / place, ExportOptionError, overwrite=True)


def test_an_unreachable_hub_is_refused_at_once(tmp_path: Path) -> None:
    """A process of its own: the hub's address and cache are read when it is imported."""
    program = (
        "import sys, time, pathlib\n"
        "from specdec.export import ExportError, ExportOptions, export_package\n"
        "started = time.monotonic()\n"
        "try:\n"
        "    export_package(ExportOptions('org/model', 'self', pathlib.Path(sys.argv[1])))\n"
        "except ExportError as error:\n"
        "    print(time.monotonic() - started, type(error).__name__, error)\n"
    )
    environment = {
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": str(tmp_path / "cache"),
        "PATH": "",
    }
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "package")],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    seconds, name, message = done.stdout.split(" ", 2)
    assert name == "SourceError"
    assert "the hub cannot be reached" in message
    assert message.count("\n") == 1
    assert done.stderr == ""
    assert float(seconds) < 60.0, "transformers alone would try every file for half a minute"


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['optimum'] = None\n"
        "from specdec.engines.errors import MissingDependencyError\n"
        "try:\n"
        "    from specdec.export import export_package\n"
        "except MissingDependencyError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "exporting needs optimum" in done.stdout
    assert "pip install optimum-onnx" in done.stdout
    assert done.stdout.count("\n") == 1
