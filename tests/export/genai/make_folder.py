"""Make the GenAI folder of the tests anew: `python -m tests.export.genai.make_folder PYTHON`.

PYTHON is the interpreter of an environment with onnxruntime-genai, onnx-ir, torch and the
transformers that its model builder wants (5 or later; this project's own is older):

    python -m venv genai && genai/bin/pip install onnxruntime-genai onnx-ir torch transformers
    python -m tests.export.genai.make_folder genai/bin/python

The builder turns the tiny `llama` of `tiny_models` (seed 0, a head as wide as the tokenizer) into
INT4; `greedy.json` beside it holds the folder's greedy text by onnxruntime-genai itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent / "int4"
PROMPT = [5, 9, 200]
NEW_TOKENS = 60
READER = """
import json, sys
import onnxruntime_genai
folder, prompt, length = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
model = onnxruntime_genai.Model(folder)
params = onnxruntime_genai.GeneratorParams(model)
params.set_search_options(max_length=length, min_length=length, do_sample=False)
generator = onnxruntime_genai.Generator(model, params)
generator.append_tokens(prompt)
while not generator.is_done():
    generator.generate_next_token()
print(json.dumps([int(token) for token in generator.get_sequence(0)][len(prompt):]))
"""


def greedy_text(python: str, folder: Path) -> list[int]:
    """`NEW_TOKENS` greedy tokens after `PROMPT`, by onnxruntime-genai in the environment given."""
    length = str(len(PROMPT) + NEW_TOKENS)
    command = [python, "-c", READER, str(folder), json.dumps(PROMPT), length]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Write the folder."""
    from tests.export.tiny_models import VOCABULARY, write_model

    python = sys.argv[1]
    with tempfile.TemporaryDirectory() as scratch:
        source = write_model(Path(scratch) / "llama", "llama", vocab_size=VOCABULARY)
        builder = [python, "-m", "onnxruntime_genai.models.builder"]
        paths = ["-i", str(source), "-o", str(FOLDER), "-c", str(Path(scratch) / "cache")]
        subprocess.run([*builder, *paths, "-p", "int4", "-e", "cpu"], check=True)
    text = json.dumps(greedy_text(python, FOLDER))
    (FOLDER.parent / "greedy.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
