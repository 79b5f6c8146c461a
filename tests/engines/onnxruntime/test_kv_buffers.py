"""Caches in one block of device memory: ONNX Runtime reads and writes them by address."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import numpy as np
import pytest

from specdec.engines import Device, DeviceError, load_package
from specdec.engines.cuda_driver import CudaDevice
from specdec.engines.onnxruntime.engine import KVCache, OrtEngine
from specdec.engines.onnxruntime.kv_buffers import DeviceTensor, shapes_of, zeroed_on_device
from tests.engines.tensorrt.double import DoubleDriver
from tests.engines.test_load import TOKENS, root  # noqa: F401

SHAPES = {"0.key": ((1, 1, 3, 5), "float16"), "0.value": ((1, 2, 64, 8), "float32")}


def test_one_block_that_is_freed_with_its_last_tensor() -> None:
    driver = DoubleDriver(gpus=2)
    driver.current = 11
    opened = lambda index: CudaDevice(index, driver)  # noqa: E731
    tensors = zeroed_on_device(SHAPES, Device("cuda", 1), opened)
    assert driver.calls.count("cuMemAlloc_v2") == 1
    assert (driver.current, driver.contexts) == (11, 1), "the thread keeps its own context"
    assert shapes_of(tensors) == SHAPES
    first, second = tensors["0.key"], tensors["0.value"]
    assert isinstance(first, DeviceTensor)
    assert second.address - first.address == 256  # 30 bytes, aligned
    assert list(driver.live) == [first.address]
    assert ctypes.string_at(first.address, 256 + 4096) == bytes(256 + 4096)
    del tensors, first
    gc.collect()
    assert driver.live
    del second
    gc.collect()
    assert not driver.live
    assert (driver.current, driver.contexts) == (11, 0)


def test_memory_that_is_not_there_leaves_nothing() -> None:
    driver = DoubleDriver()
    driver.fail["cuMemAlloc_v2"] = 2
    with pytest.raises(DeviceError, match="out of memory"):
        zeroed_on_device(SHAPES, Device("cuda"), lambda index: CudaDevice(index, driver))
    assert driver.contexts == 0


def test_an_engine_on_such_a_cache(root: Path) -> None:  # noqa: F811
    """The double's addresses are the host's, so the CPU's provider uses them as a GPU's would."""
    driver = DoubleDriver()
    with load_package(root, num_threads=1, load_draft=False) as package:
        plain = package.target
        assert isinstance(plain, OrtEngine)
        buffers = zeroed_on_device(
            shapes_of(plain.cache.buffers), Device("cuda"), lambda index: CudaDevice(index, driver)
        )
        cache = KVCache(buffers, Device("cpu"))
        tested = plain.beside(cache)
        for ids, count in ((TOKENS[:, :3], 1), (TOKENS[:, :1], 1), (TOKENS[:, 1:3], 2)):
            np.testing.assert_array_equal(tested.forward(ids, count), plain.forward(ids, count))
        for engine in (tested, plain):
            engine.truncate(4)
        np.testing.assert_array_equal(
            tested.forward(TOKENS[:, :2], 2), plain.forward(TOKENS[:, :2], 2)
        )
        tested.close()
    del cache, buffers, tested
    gc.collect()
    assert driver.live == {}
