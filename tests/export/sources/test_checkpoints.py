"""Every tensor of a checkpoint becomes a parameter, or the export refuses by its name."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specdec.export.errors import SourceError, UnsupportedModelError
from specdec.export.sources.source import load_config, resolve_source
from specdec.export.sources.weights import account_for, load_model
from tests.export.exporting import export
from tests.export.test_refusals import refuse
from tests.export.tiny_models import make_model, write_model

State = dict[str, torch.Tensor]
DOWN = "model.layers.1.mlp.down_proj.weight"


def changed(source: Path, folder: Path, change: Callable[[State], State | None]) -> Path:
    """A copy of a folder with other tensors."""
    shutil.copytree(source, folder)
    state = load_file(folder / "model.safetensors")
    state = change(state) or state
    save_file({k: v.contiguous().clone() for k, v in state.items()}, folder / "model.safetensors")
    return folder


def refused(source: Path, tmp_path: Path, error: type[Exception] = SourceError) -> str:
    (tmp_path / "beside").mkdir()
    return refuse(source, tmp_path / "beside" / "package", error)


def another_head(state: State) -> State:
    del state["lm_head.weight"]
    return state | {"score.weight": torch.zeros(2, 64)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop(DOWN) is None or s, f"lacks 1 tensors of the model ({DOWN})"),
        (another_head, "lacks 1 tensors of the model (lm_head.weight)"),
        (another_head, "no place for (score.weight)"),
        (lambda s: {f"wrapped.{k}": v for k, v in s.items()}, "(wrapped.lm_head.weight, "),
        (lambda s: s | {"extra": torch.zeros(1)}, "no place for (extra)"),
        (lambda s: s | {DOWN: torch.zeros(64, 97)}, "shape [64, 97], and the configuration needs"),
        (lambda s: s | {"lm_head.weight": torch.zeros(341, 64)}, "[341, 64]"),
        (lambda s: s | {DOWN: torch.zeros(64, 96, dtype=torch.int8)}, f"{DOWN} as I8"),
        (lambda s: s | {DOWN: torch.zeros(64, 96).to(torch.float8_e4m3fn)}, f"{DOWN} as F8_E4M3"),
        (
            lambda s: s | {"model.layers.0.mlp.up_proj.qweight": torch.zeros(8, 96).int()},
            "is quantized already (model.layers.0.mlp.up_proj.qweight looks like GPTQ or AWQ)",
        ),
    ],
)
def test_tensors_that_do_not_belong_are_named(
    llama: Path, tmp_path: Path, change: Callable[[State], State], words: str
) -> None:
    assert words in refused(changed(llama, tmp_path / "source", change), tmp_path)


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "fp8", "compressed-tensors"])
def test_a_quantized_checkpoint_is_refused_by_its_method(
    llama: Path, tmp_path: Path, method: str
) -> None:
    source = tmp_path / "source"
    shutil.copytree(llama, source)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "bits": 4}
    (source / "config.json").write_text(json.dumps(config))
    assert f"is quantized already ({method})" in refused(source, tmp_path, UnsupportedModelError)


@pytest.mark.parametrize(
    "prefix", ["_orig_mod.", "module.", "module._orig_mod.", "base_model.model.", "model."]
)
def test_the_names_of_known_wrappers_are_taken_off(
    llama: Path, tmp_path: Path, prefix: str
) -> None:
    source = changed(llama, tmp_path / "s", lambda s: {f"{prefix}{k}": v for k, v in s.items()})
    loaded = resolve_source(str(source))
    accounted = account_for(loaded, load_config(loaded))
    assert accounted is not None
    assert accounted.stripped == prefix
    assert repr(prefix) in accounted.notes[0]
    expected = make_model("llama").state_dict()
    found = load_model(loaded).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_layer_that_was_compiled_is_read(llama: Path, tmp_path: Path) -> None:
    def wrap(state: State) -> State:
        return {k.replace("layers.1.", "layers.1._orig_mod."): v for k, v in state.items()}

    source = resolve_source(str(changed(llama, tmp_path / "source", wrap)))
    assert torch.equal(
        load_model(source).state_dict()[DOWN], make_model("llama").state_dict()[DOWN]
    )


def test_a_tied_decoder_without_its_head_is_read(tmp_path: Path) -> None:
    """Saved from the decoder alone: the names lack its prefix, and the head is the embedding."""
    folder = write_model(tmp_path / "tied", "llama-tied")
    source = resolve_source(
        str(
            changed(
                folder,
                tmp_path / "bare",
                lambda s: {k.removeprefix("model."): v for k, v in s.items()},
            )
        )
    )
    accounted = account_for(source, load_config(source))
    assert accounted is not None
    assert accounted.record() == {
        "in_source": 20,
        "loaded": 20,
        "tied": 1,
        "left_over": 0,
        "tables": 0,
    }
    found, expected = load_model(source).state_dict(), make_model("llama-tied").state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_tables_that_old_releases_saved_are_left_out(llama: Path, tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    folder = changed(llama, tmp_path / "source", lambda s: s | {name: torch.zeros(8)})
    source = resolve_source(str(folder))
    accounted = account_for(source, load_config(source))
    assert accounted is not None
    assert accounted.left_over == (name,)
    assert name in accounted.notes[0]


def test_a_tie_that_the_file_contradicts_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tied", "llama-tied")
    source = changed(folder, tmp_path / "s", lambda s: s | {"lm_head.weight": torch.ones(340, 64)})
    assert "correct tie_word_embeddings" in refused(source, tmp_path)


def shards(source: Path, folder: Path) -> Path:
    """The same model in two shards with an index."""
    shutil.copytree(source, folder)
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, where = sorted(state), {}
    for number, part in enumerate((names[:9], names[9:]), start=1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: state[name] for name in part}, folder / file)
        where |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_shards_are_read_and_a_missing_one_is_named(llama: Path, tmp_path: Path) -> None:
    folder = shards(llama, tmp_path / "source")
    found = load_model(resolve_source(str(folder))).state_dict()
    expected = make_model("llama").state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "the shard model-00002-of-00002.safetensors" in refused(folder, tmp_path)


def test_a_tensor_in_two_shards_is_refused(llama: Path, tmp_path: Path) -> None:
    folder = shards(llama, tmp_path / "source")
    second = folder / "model-00002-of-00002.safetensors"
    save_file(load_file(second) | {"lm_head.weight": torch.zeros(340, 64)}, second)
    assert "tensor lm_head.weight is in model-00001-of-00002" in refused(folder, tmp_path)


def torn(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def a_lying_header(folder: Path) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]}}).encode()
    data = struct.pack("<Q", len(header)) + header + b"\0" * 4
    (folder / "model.safetensors").write_bytes(data)


def a_pointer(name: str) -> Callable[[Path], None]:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1000000\n"
    return lambda folder: (folder / name).write_text(text) and None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (torn, "within tensor"),
        (a_lying_header, "tensor x takes 4 bytes"),
        (a_pointer("model.safetensors"), "model.safetensors is a Git LFS pointer"),
        (a_pointer("tokenizer.json"), "tokenizer.json is a Git LFS pointer"),
    ],
)
def test_files_that_are_not_whole_are_refused(
    llama: Path, tmp_path: Path, change: Callable[[Path], None], words: str
) -> None:
    source = tmp_path / "source"
    shutil.copytree(llama, source)
    change(source)
    assert words in refused(source, tmp_path)


def as_pickle(source: Path, folder: Path, data: Any = None) -> Path:
    shutil.copytree(source, folder)
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(state if data is None else data, folder / "pytorch_model.bin")
    return folder


def test_a_bin_file_of_tensors_is_read(llama: Path, tmp_path: Path) -> None:
    source = resolve_source(str(as_pickle(llama, tmp_path / "source")))
    found, expected = load_model(source).state_dict(), make_model("llama").state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    del expected["lm_head.weight"]
    lacking = resolve_source(str(as_pickle(llama, tmp_path / "lacking", expected)))
    with pytest.raises(SourceError, match=r"lacks 1 tensors of the model \(lm_head.weight\)"):
        load_model(lacking)


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("this-ran"),))


def test_a_bin_file_with_code_is_not_run(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = as_pickle(llama, tmp_path / "source")
    torch.save({"x": _Runs()}, source / "pytorch_model.bin")
    monkeypatch.chdir(tmp_path)
    assert "holds more than tensors" in refused(source, tmp_path)
    assert not (tmp_path / "this-ran").exists()
    state = as_pickle(llama, tmp_path / "state", {"model": {}, "step": 3})
    shutil.rmtree(tmp_path / "beside")
    assert "something else than a table of tensors" in refused(state, tmp_path)


def test_values_beyond_fp16_stay_wide_and_are_named(llama: Path, tmp_path: Path) -> None:
    def enlarge(state: State) -> State:
        wide = {k: v.bfloat16() for k, v in state.items()}
        wide[DOWN][0, 0] = 1e5  # bfloat16 goes to 3e38
        return wide

    source = changed(llama, tmp_path / "source", enlarge)
    report = export(source, tmp_path / "package", target_precision="fp16", draft="none")
    notes = [n for n in report.manifest.checks["notes"] if "stay fp32" in n]
    assert len(notes) == 1
    assert notes[0].startswith("1 weights of the target stay fp32")
    assert DOWN in notes[0]
