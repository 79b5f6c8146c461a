"""Bounds on what a package or a user's file may make this process read, parse or run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import onnx
import pytest

from specdec.cli.options import prompts
from specdec.cli.options.prompts import read_file, read_prompts, read_tools
from specdec.engines import EngineError, OrtOptions, PackageError, load_package
from specdec.engines.devices import Device, require_provider
from specdec.engines.package.operators import OPERATORS, check_operators
from specdec.engines.package.strict_json import MAX_VALUES, parse_object
from tests.engines.packages import TARGET_GRAPH
from tests.engines.test_load import relist_tiny, root  # noqa: F401


@pytest.mark.parametrize(
    "document",
    ["[" * 7_000_000, '{"a":[' + "[]," * 2_000_000 + "[]]}", '{"a":' * 1_000_000],
    ids=["brackets", "lists", "objects"],
)
def test_a_manifest_of_brackets_is_not_parsed(
    document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("it was parsed"))
    with pytest.raises(PackageError, match=f"has about .* values; allowed are {MAX_VALUES}"):
        parse_object(document)


def with_loop(path: Path) -> None:
    """Put a loop that never ends before a graph's logits."""
    helper, types = onnx.helper, onnx.TensorProto
    condition = helper.make_tensor_value_info("on", types.BOOL, [])
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["on_out"])],
        "body",
        [helper.make_tensor_value_info("i", types.INT64, []), condition],
        [helper.make_tensor_value_info("on_out", types.BOOL, [])],
    )
    model = onnx.load(str(path))
    true = helper.make_node("Constant", [], ["true"], value=helper.make_tensor("t", 9, [], [True]))
    loop = helper.make_node("Loop", ["", "true"], [], body=body, name="endless")
    model.graph.node.extend([true, loop])
    onnx.save_model(model, str(path))


def test_a_graph_with_a_loop_is_refused_unless_it_is_named(root: Path) -> None:  # noqa: F811
    with_loop(root / TARGET_GRAPH)
    relist_tiny(root)
    with pytest.raises(PackageError, match=r"holds the operators Loop, which no export") as caught:
        load_package(root, num_threads=1)
    assert "\n" not in str(caught.value)
    with pytest.raises(EngineError, match="cannot load the target engine"):  # ONNX Runtime's word
        load_package(root, num_threads=1, ort=OrtOptions(allow_operators=("Loop",)))


@pytest.mark.parametrize(
    ("domain", "name", "allowed"),
    [
        ("", "MatMul", True),
        ("ai.onnx", "MatMul", True),
        ("com.microsoft", "GroupQueryAttention", True),
        ("specdec", "Attention", True),
        ("", "Loop", False),
        ("", "If", False),
        ("", "Scan", False),
        ("com.microsoft", "MatMul", False),
        ("somebody", "MatMul", False),
    ],
)
@pytest.mark.parametrize("where", ["graph", "subgraph", "function"])
def test_operators_are_found_wherever_they_are(
    tmp_path: Path, domain: str, name: str, allowed: bool, where: str
) -> None:
    helper, types = onnx.helper, onnx.TensorProto
    node = helper.make_node(name, ["x"], ["y"], domain=domain)
    value = helper.make_tensor_value_info("x", types.FLOAT, [1])
    functions = []
    if where == "subgraph":
        inner = helper.make_graph([node], "inner", [], [])
        node = helper.make_node("Identity", ["x"], ["y"], body=inner)
    elif where == "function":
        opsets = [helper.make_opsetid("", 17)]
        functions = [helper.make_function("specdec", "F", ["x"], ["y"], [node], opsets)]
        node = helper.make_node("F", ["x"], ["y"], domain="specdec")
    model = helper.make_model(helper.make_graph([node], "g", [value], []), functions=functions)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    full = f"{domain}.{name}" if domain not in ("", "ai.onnx") else name
    if allowed:
        check_operators(path)
        return
    with pytest.raises(PackageError, match=f"holds the operators {full}, which no export"):
        check_operators(path)
    check_operators(path, [full])


def test_no_operator_of_the_list_repeats_or_branches() -> None:
    assert not OPERATORS & {"Loop", "Scan", "If", "SequenceMap"}


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MAX_BYTES", 1000)


@pytest.mark.usefixtures("few_bytes")
def test_files_without_end_are_not_read() -> None:
    with pytest.raises(click.UsageError, match="of /dev/zero is larger than 1000 bytes; shorten"):
        read_prompts((), ("/dev/zero",), False, package=None)
    with pytest.raises(click.UsageError, match="/dev/zero is larger than 1000 bytes"):
        read_file(Path("/dev/zero"))
    with pytest.raises(click.UsageError, match="/dev/zero is larger than 1000 bytes"):
        read_tools(Path("/dev/zero"))


def test_a_prompt_file_is_read_up_to_the_context(root: Path, tmp_path: Path) -> None:  # noqa: F811
    reason = "is larger than 32768 bytes, more than a context of 32 tokens holds; shorten it"
    with pytest.raises(click.UsageError, match=reason):
        read_prompts((), ("/dev/zero",), False, package=root)
    long = tmp_path / "long.txt"
    long.write_text("a" * 32769)
    with pytest.raises(click.UsageError, match=reason):
        read_prompts((), (str(long),), False, package=root)
    assert read_prompts((), (str(long),), False, package=root, truncates=True) == ["a" * 32769]


def test_tools_that_nest_without_end_are_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text("[" * 1_000_000)
    with pytest.raises(click.UsageError, match="is not JSON"):
        read_tools(path)


def test_ctrl_c_while_onnx_runtime_is_imported_is_ctrl_c(tmp_path: Path) -> None:
    """What its extension module makes of an interrupt: an ImportError whose cause it is."""
    folder = tmp_path / "onnxruntime"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "try:\n    raise KeyboardInterrupt\nexcept BaseException as error:\n"
        "    raise ImportError('initialization failed') from error\n"
    )
    script = (
        "import sys, click\nfrom specdec.cli.common import invoke\n"
        "from specdec.engines.devices import Device, require_provider\n"
        "@click.command()\ndef command():\n    require_provider(Device('cpu'))\n"
        "sys.exit(invoke(command, []))"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_onnx_runtime_itself_is_there() -> None:
    require_provider(Device("cpu"))
