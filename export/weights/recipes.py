"""Recipes: named ways to store and run weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdec.export.errors import ExportOptionError

__all__ = ["CUDA_RECIPES", "RECIPES", "Recipe", "find_recipe"]


@dataclass(frozen=True)
class Recipe:
    """One way to store and run a draft's weights."""

    name: str
    storage: str
    """Precision on disk, as the manifest names it."""
    compute: str
    """Precision of the arithmetic on the device it is made for."""
    method: str
    """"none", "dynamic", "rtn", "kquant" or "hqq"; "tensorrt" for a graph of standard operators."""
    bits: int = 32
    head_bits: int = 32
    block_size: int = 32
    """Weights along the input that share a scale; more are faster, fewer more exact."""
    mixed: bool = False
    """Matrices with more inputs than outputs (down projections) keep `head_bits`."""
    kv_dtype: str = "float32"
    """Element type of the KV cache."""
    calibrated: bool = False
    """Activations are quantized as well, with scales found by running texts."""


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("fp32", "fp32", "fp32", "none"),
        Recipe("fp16", "fp16", "fp32", "none", 16, 16),
        Recipe("int8-dynamic", "int8", "int8", "dynamic", 8, 8),
        Recipe("int8-blocks", "int8", "int8", "rtn", 8, 8, 64),
        Recipe("int8-blocks-b128", "int8", "int8", "rtn", 8, 8, 128),
        Recipe("int4-rtn", "int4", "int8", "rtn", 4, 8, 64),
        Recipe("int4-rtn-b32", "int4", "int8", "rtn", 4, 8),
        Recipe("int4-kquant", "int4", "int8", "kquant", 4, 8),
        Recipe("int4-kquant-b64", "int4", "int8", "kquant", 4, 8, 64),
        Recipe("int4-kquant-h4", "int4", "int8", "kquant", 4, 4),
        Recipe("int4-kquant-mixed", "int4", "int8", "kquant", 4, 8, mixed=True),
        Recipe("int4-hqq", "int4", "int8", "hqq", 4, 8),
    )
}
_SHORT = {"int8": "int8-blocks", "int4": "int4-rtn"}
_NOT_ON_CUDA = {
    "fp32": "attention has no FP32 kernel there",
    "int8-dynamic": "activations that are quantized as they come would visit the CPU",
    "int4-hqq": "its fast kernels do not read floating zero points",
}
CUDA_RECIPES = {
    name: replace(recipe, compute="fp16", kv_dtype="float16")
    for name, recipe in RECIPES.items()
    if name not in _NOT_ON_CUDA
}
"""What ONNX Runtime's CUDA provider runs with FP16 arithmetic and an FP16 cache."""
_TENSORRT = {
    "fp16": Recipe("fp16", "fp16", "fp16", "tensorrt", 16, 16, kv_dtype="float16"),
    "int8": Recipe("int8-weights", "int8", "fp16", "tensorrt", 8, 8, kv_dtype="float16"),
    "int8-qdq": Recipe(
        "int8-qdq", "int8", "int8", "tensorrt", 8, 8, kv_dtype="float16", calibrated=True
    ),
    "int4": Recipe("int4-weights", "int4", "fp16", "tensorrt", 4, 4, 64, kv_dtype="float16"),
}


def find_recipe(name: str, backend: str = "onnxruntime", device: str = "cpu") -> Recipe:
    """The recipe called `name`; "int8" and "int4" are the measured best of their kind.

    Args:
        name: of a recipe, or "int8" or "int4".
        backend: "onnxruntime" or a TensorRT one.
        device: "cpu" or "cuda": what an ONNX Runtime engine is made for.

    Raises:
        ExportOptionError: the backend has no such recipe for the device, or `device` is neither.
    """
    if device not in ("cpu", "cuda"):
        raise ExportOptionError(
            f"device {device!r} is no kind of device that engines are made for; allowed are cpu, "
            "cuda"
        )
    if backend != "onnxruntime":
        recipe, allowed, where = _TENSORRT.get(name), list(_TENSORRT), backend
    else:
        known = CUDA_RECIPES if device == "cuda" else RECIPES
        recipe = known.get(_SHORT.get(name, name))
        allowed = [*_SHORT, *known]
        where = f"{backend} on cuda" if device == "cuda" else backend
    if recipe is None:
        reason = _NOT_ON_CUDA.get(name, "") if where.endswith("cuda") else ""
        raise ExportOptionError(
            f"precision {name!r} is not known for {where}{reason and f' ({reason})'}; "
            f"allowed are {', '.join(allowed)}"
        )
    return recipe
