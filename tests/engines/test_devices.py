"""Devices: what is understood, and what this installation can run on."""

from __future__ import annotations

import sys
from typing import Any

import onnxruntime
import pytest

from specdec.engines import (
    Device,
    DeviceError,
    MissingDependencyError,
    available_devices,
    require_provider,
)
from specdec.engines.devices import _find_gpus
from tests.engines.packages import assert_one_line
from tests.engines.tensorrt.double import DoubleDriver

HAS_CUDA_BUILD = "CUDAExecutionProvider" in onnxruntime.get_available_providers()


@pytest.mark.parametrize(
    ("text", "kind", "index", "canonical", "provider"),
    [
        ("cpu", "cpu", 0, "cpu", "CPUExecutionProvider"),
        ("cuda", "cuda", 0, "cuda:0", "CUDAExecutionProvider"),
        ("cuda:0", "cuda", 0, "cuda:0", "CUDAExecutionProvider"),
        ("cuda:12", "cuda", 12, "cuda:12", "CUDAExecutionProvider"),
    ],
)
def test_devices_are_parsed(
    text: str, kind: str, index: int, canonical: str, provider: str
) -> None:
    device = Device.parse(text)
    assert (device.kind, device.index) == (kind, index)
    assert str(device) == canonical
    assert device.provider == provider
    assert Device.parse(canonical) == device
    assert Device.parse(device) is device


@pytest.mark.parametrize(
    "text",
    [
        "",
        "CPU",
        "gpu",
        "cpu:0",
        "cuda:",
        "cuda:-1",
        "cuda:01",
        "cuda:1.0",
        "cuda:٣",
        " cuda",
        "c\nu",
    ],
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(DeviceError) as caught:
        Device.parse(text)
    message = assert_one_line(caught.value)
    assert repr(text) in message
    assert 'allowed is "cpu", "cuda" or "cuda:N"' in message


def test_only_text_is_parsed() -> None:
    with pytest.raises(DeviceError, match="device None is not understood"):
        Device.parse(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "index"), [("tpu", 0), ("cpu", 1), ("cuda", -1), ("cuda", True)])
def test_the_constructor_holds_the_same_rules(kind: str, index: int) -> None:
    with pytest.raises(DeviceError, match=r"allowed is"):
        Device(kind, index)


def test_the_cpu_can_always_run() -> None:
    require_provider(Device("cpu"))
    assert available_devices()[0] == Device("cpu")


@pytest.mark.skipif(HAS_CUDA_BUILD, reason="this ONNX Runtime has the CUDA provider")
def test_a_build_without_cuda_is_told_what_to_install() -> None:
    assert available_devices() == [Device("cpu")]
    with pytest.raises(MissingDependencyError) as caught:
        require_provider(Device("cuda"))
    message = assert_one_line(caught.value)
    assert "CUDAExecutionProvider" in message
    assert "pip uninstall onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu" in message


@pytest.mark.skipif(not HAS_CUDA_BUILD, reason="this ONNX Runtime lacks the CUDA provider")
def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(DeviceError, match="cuda:999 is not on this machine, which has") as caught:
        require_provider(Device("cuda", 999))
    assert_one_line(caught.value)
    for device in available_devices():
        require_provider(device)


@pytest.mark.parametrize(
    ("driver", "found"),
    [
        (None, (0, "no NVIDIA driver (libcuda.so.1)")),
        (DoubleDriver(gpus=2), (2, "cuda:0 .. cuda:1")),
        (DoubleDriver(gpus=0), (0, "no GPU")),
        (100, (0, "an NVIDIA driver that finds no usable GPU (CUDA error 100)")),
    ],
)
def test_what_the_driver_says(
    driver: Any, found: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> Any:
        if driver is None:
            raise OSError(name)
        if isinstance(driver, int):
            broken = DoubleDriver()
            broken.fail["cuInit"] = driver
            return broken
        return driver

    monkeypatch.setattr("ctypes.CDLL", load)
    assert _find_gpus() == found


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_no_onnxruntime_is_told_what_to_install(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError) as caught:
        require_provider(Device(kind))
    wheel = {"cpu": "onnxruntime", "cuda": "onnxruntime-gpu"}[kind]
    assert assert_one_line(caught.value).endswith(f"run: pip install {wheel}")
