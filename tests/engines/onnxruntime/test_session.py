"""What ONNX Runtime is asked for on a GPU, and what is refused before anything is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specdec.engines import (
    Device,
    DeviceError,
    EngineEntry,
    EngineError,
    OrtOptions,
    available_devices,
    load_package,
)
from specdec.engines.cuda_driver import CudaDevice
from specdec.engines.onnxruntime import memory as ort_memory
from specdec.engines.onnxruntime import session as ort_session
from specdec.engines.onnxruntime.gpu import (
    TensorRTPlan,
    check_assignment,
    cuda_advice,
    cuda_failure,
    gpu_providers,
    provider_options,
)
from specdec.engines.onnxruntime.memory import Need, check_gpu_memory
from specdec.engines.onnxruntime.options import check_applies
from specdec.engines.package.build_record import TensorRTEntry
from tests.engines.packages import TARGET_FIELDS, assert_one_line
from tests.engines.tensorrt.double import DoubleDriver
from tests.engines.test_devices import HAS_CUDA_BUILD
from tests.engines.test_load import root  # noqa: F401

GPU = Device("cuda", 1)


def test_options_of_the_cuda_provider() -> None:
    assert provider_options(GPU, OrtOptions()) == {
        "device_id": "1",
        "use_tf32": "0",
        "arena_extend_strategy": "kSameAsRequested",
        "sdpa_kernel": "19",
    }
    more = provider_options(GPU, OrtOptions(cuda_graphs=True, gpu_memory_limit=10**9))
    assert more["enable_cuda_graph"] == "1"
    assert more["gpu_mem_limit"] == "1000000000"


def test_cuda_graphs_need_a_gpu(root: Path) -> None:  # noqa: F811
    with pytest.raises(EngineError, match="cuda_graphs is True and needs an engine") as caught:
        load_package(root, ort=OrtOptions(cuda_graphs=True))
    assert_one_line(caught.value)


def test_a_session_beside_its_device_is_refused(root: Path) -> None:  # noqa: F811
    """The assignment is ONNX Runtime's own record: here everything runs on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    graph = str(root / "target" / "model.onnx")
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    if not hasattr(session, "get_provider_graph_assignment_info"):
        pytest.skip("this ONNX Runtime does not tell where nodes run")
    with pytest.raises(
        EngineError, match="would leave parts of it to the CPU instead of cuda:1"
    ) as caught:
        check_assignment(session, GPU, "target")
    assert "1 GroupQueryAttention, 1 MatMul; export it" in str(caught.value)
    assert_one_line(caught.value)


RTX = replace(
    EngineEntry(**TARGET_FIELDS),
    backend="tensorrt-rtx",
    graph="target/model.engine",
    tensorrt=TensorRTEntry("1.7.1", ("8.9",), ((1, 1, 1),), (1,), {"projections": "fp16"}, 1.0),
)
ON_CPU = [(EngineEntry(**TARGET_FIELDS), Device("cpu"))]
ON_GPU = [(EngineEntry(**TARGET_FIELDS), GPU)]


@pytest.mark.parametrize(
    ("options", "engines"),
    [
        ({"cuda_graphs": True}, ON_GPU),
        ({"cuda_graphs": True}, [*ON_GPU, *ON_CPU]),
        ({"cuda_graphs": False}, ON_CPU),
        ({"gpu_memory_limit": 10**9}, ON_GPU),
        ({"allow_cpu_fallback": True}, ON_GPU),
        ({"reduce_logits": False}, ON_CPU),
        ({"load_cache": "cache"}, ON_CPU),
        ({"load_cache": "cache"}, [(RTX, GPU)]),
        ({}, []),
    ],
)
def test_options_that_apply(options: dict[str, Any], engines: list[Any]) -> None:
    check_applies(OrtOptions(**options), engines, is_hashed=True)


@pytest.mark.parametrize(
    ("options", "engines"),
    [
        ({"cuda_graphs": True}, ON_CPU),
        ({"gpu_memory_limit": 10**9}, ON_CPU),
        ({"allow_cpu_fallback": True}, ON_CPU),
        ({"load_cache": "cache"}, ON_GPU),
        ({"reduce_logits": True}, [(replace(ON_CPU[0][0], layout="concatenated"), Device("cpu"))]),
    ],
)
def test_an_option_without_an_engine_is_an_error(
    options: dict[str, Any], engines: list[Any]
) -> None:
    with pytest.raises(EngineError, match=f"{next(iter(options))} is .* and needs an") as caught:
        check_applies(OrtOptions(**options), engines, is_hashed=True)
    assert_one_line(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cuda_graphs": "false"}, "cuda_graphs is 'false'; allowed is None, True or False"),
        ({"allow_cpu_fallback": 1}, "allow_cpu_fallback is 1; allowed is True or False"),
        ({"reduce_logits": "never"}, "reduce_logits is 'never'; allowed is None, True or False"),
        ({"load_cache": ""}, "load_cache is ''; allowed is None or a path"),
        ({"gpu_memory_limit": 0}, "gpu_memory_limit is 0; allowed is None or"),
    ],
)
def test_values_that_are_not_allowed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError) as caught:
        OrtOptions(**options)
    assert message in assert_one_line(caught.value)


@pytest.fixture(autouse=True)
def a_fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort_memory, "_LOADED_ON", set())


def need(folder: Path, name: str = "target", device: Device = GPU, **fields: Any) -> Need:
    graph = folder / name / "model.onnx"
    graph.parent.mkdir(exist_ok=True)
    graph.write_bytes(b"g" * 1000)
    graph.with_name("model.onnx.data").write_bytes(b"w" * 9000)
    own = fields.pop("own_cache", True)
    return Need(name, graph, EngineEntry(**{**TARGET_FIELDS, **fields}), device, own)


def test_what_an_engine_needs(tmp_path: Path) -> None:
    cache = 2 * 2 * 2 * 64 * 8  # key and value, layers, heads, tokens, size of a head
    logits = 128 * 4
    assert need(tmp_path).num_bytes == 2 * 10_000 + 4 * cache + logits
    half = need(tmp_path, compute="fp16", kv_dtype="float16")
    assert half.num_bytes == 10_000 + 2 * cache + logits
    assert need(tmp_path, own_cache=False).num_bytes == 2 * 10_000 + logits


def test_too_little_memory_for_a_pair(tmp_path: Path) -> None:
    """Needed and free are said before the first of the two is loaded."""
    driver = DoubleDriver(gpus=2)
    pair = [need(tmp_path), need(tmp_path, "draft", storage="int8", compute="int8")]
    wanted = sum(one.num_bytes for one in pair)
    opened = lambda index: CudaDevice(index, driver)  # noqa: E731
    driver.free_bytes = wanted
    driver.current = 11
    check_gpu_memory(pair, opened)
    assert driver.current == 11, "the thread's own context is current again"
    ort_memory._LOADED_ON.clear()
    driver.free_bytes = wanted - 1
    with pytest.raises(DeviceError, match="the target and draft engines need at least") as caught:
        check_gpu_memory(pair, opened)
    assert_one_line(caught.value)
    check_gpu_memory([pair[0], need(tmp_path, "draft", Device("cpu"))], opened)
    assert driver.contexts == 0


def test_each_gpu_is_asked_for_its_own(tmp_path: Path) -> None:
    driver = DoubleDriver(gpus=2)
    pair = [need(tmp_path), need(tmp_path, "draft", Device("cuda", 0))]
    driver.free_bytes = max(one.num_bytes for one in pair)
    check_gpu_memory(pair, lambda index: CudaDevice(index, driver))
    driver.free_bytes -= 1
    check_gpu_memory(pair, lambda index: CudaDevice(index, driver))  # the arena may hold some
    ort_memory._LOADED_ON.clear()
    with pytest.raises(DeviceError, match=r"engine needs at least .* of cuda:0"):
        check_gpu_memory(pair, lambda index: CudaDevice(index, driver))


def test_tensorrt_knows_every_shape_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = TensorRTPlan(("input_ids", "logit_rows", "seqlens_k"), 256, tmp_path)
    first, second, third = gpu_providers(GPU, OrtOptions(), plan)
    assert first == (
        "TensorrtExecutionProvider",
        {
            "device_id": "1",
            "trt_profile_min_shapes": "input_ids:1x1,logit_rows:1",
            "trt_profile_opt_shapes": "input_ids:1x5,logit_rows:5",
            "trt_profile_max_shapes": "input_ids:1x256,logit_rows:256",
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": str(tmp_path),
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": str(tmp_path),
        },
    )
    assert (second[0], third) == ("CUDAExecutionProvider", "CPUExecutionProvider")
    plan.warn("target")
    assert caplog.messages == [f"building a TensorRT engine for the target, once, into {tmp_path}"]
    (tmp_path / "graph.engine").write_bytes(b"")
    caplog.clear()
    plan.warn("target")
    assert caplog.messages == []


def test_an_engine_that_is_not_kept_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    plan = TensorRTPlan(("input_ids", "position_ids", "logit_rows"), 3, None)
    options = plan.options(Device("cuda"))
    assert options["trt_profile_opt_shapes"] == "input_ids:1x3,position_ids:1x3,logit_rows:3"
    assert not any(name.startswith("trt_engine") for name in options)
    plan.warn("draft")
    assert "at every load: name a load_cache" in caplog.text


def test_cuda_says_why() -> None:
    """The words of ONNX Runtime 1.31 under a driver that is too old."""
    error = RuntimeError(
        '[ONNXRuntimeError] : 1 : FAIL : Failed to parse provider option "device_id": CUDA failure '
        "35: CUDA driver version is insufficient for CUDA runtime version ; GPU=-1 ; hostname=x"
    )
    words = "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version"
    assert cuda_failure(error) == words
    assert cuda_failure(RuntimeError("no such file")) is None


@pytest.mark.skipif(not HAS_CUDA_BUILD, reason="this ONNX Runtime lacks the CUDA provider")
@pytest.mark.skipif(len(available_devices()) > 1, reason="this machine has a GPU")
def test_missing_libraries_are_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(ort_session, "require_provider", lambda device: None)
    with pytest.raises(DeviceError, match=r"cannot use cuda:1: lib.* cannot open") as caught:
        ort_session.create_session(root / "target" / "model.onnx", name="target", device=GPU)
    assert_one_line(caught.value)


def test_memory_that_a_jetson_would_free(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = DoubleDriver(free=10**6)
    monkeypatch.setattr("specdec.engines.cuda_driver._available_memory", lambda: 3 * 10**9)
    assert CudaDevice(0, driver).memory() == (10**6, 2**33)
    driver.integrated = True
    assert CudaDevice(0, driver).memory() == (3 * 10**9, 2**33)


def test_advice_by_cause() -> None:
    assert "free some of its memory" in cuda_advice("CUDA failure 2: out of memory ")
    assert "update the driver" in cuda_advice(
        "CUDA failure 35: CUDA driver version is insufficient"
    )
