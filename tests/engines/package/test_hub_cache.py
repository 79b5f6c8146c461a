"""A package in a hub's cache: a snapshot folder of links into blobs; no other link leaves it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specdec.engines import PackageError, load_package, read_package
from specdec.runtime import SamplingParams, SpeculativeDecoder

pytest.importorskip("onnx", reason="builds its graphs with the onnx package")
from tests.cli.alphabet_package import write_alphabet_package


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """The alphabet package as `huggingface_hub` lays it out, its graphs with external data."""
    import onnx

    package = write_alphabet_package(tmp_path / "package")
    for name in ("target", "draft"):
        graph = package / f"{name}.onnx"
        onnx.save_model(
            onnx.load(graph),
            graph,
            save_as_external_data=True,
            location=f"{name}.data",
            size_threshold=0,
        )
    _list_again(package)
    cache = tmp_path / "models--org--alphabet"
    root = cache / "snapshots" / "0123abcd"
    root.mkdir(parents=True)
    (cache / "blobs").mkdir()
    for index, path in enumerate(sorted(package.iterdir())):
        path.rename(cache / "blobs" / f"{index:040x}")
        (root / path.name).symlink_to(f"../../blobs/{index:040x}")
    return root


def _list_again(package: Path) -> None:
    from dataclasses import replace

    from specdec.engines import Manifest, inventory, write_manifest

    manifest = Manifest.from_json((package / "specdec.json").read_text())
    write_manifest(package, replace(manifest, files=inventory(package)))


def test_it_loads_and_runs(snapshot: Path) -> None:
    with load_package(snapshot, num_threads=1) as package:
        assert package.package.is_hashed
    with SpeculativeDecoder.load(snapshot, num_threads=1) as decoder:
        text = decoder.generate("a", SamplingParams(max_new_tokens=30)).text
    assert text == "bcdefghijklmnopqrstuvwxyz"


def test_it_loads_through_a_link_to_the_snapshot(snapshot: Path, tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(snapshot)
    read_package(tmp_path / "model")


@pytest.mark.parametrize("place", ["secret", "models--org--alphabet/secret", "blobs/secret"])
def test_a_link_to_elsewhere_is_refused(snapshot: Path, tmp_path: Path, place: str) -> None:
    inside = tmp_path / "models--org--alphabet" / "blobs" / "deeper"
    secret = inside / "secret" if place == "blobs/secret" else tmp_path / place
    secret.parent.mkdir(parents=True, exist_ok=True)
    link = snapshot / "tokenizer.json"
    Path(os.path.realpath(link)).rename(secret)
    link.unlink()
    link.symlink_to(secret)
    with pytest.raises(PackageError, match=r"tokenizer\.json is a link that leaves the package"):
        read_package(snapshot)


def test_blobs_that_are_elsewhere_are_refused(snapshot: Path, tmp_path: Path) -> None:
    blobs = snapshot.parents[1] / "blobs"
    blobs.rename(tmp_path / "elsewhere")
    blobs.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PackageError, match="is a link that leaves the package"):
        read_package(snapshot)


def test_the_same_links_outside_a_snapshot_are_refused(snapshot: Path) -> None:
    other = snapshot.parent.rename(snapshot.parents[1] / "revisions") / snapshot.name
    with pytest.raises(PackageError, match="is a link that leaves the package"):
        read_package(other)
