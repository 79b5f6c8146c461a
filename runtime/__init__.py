"""Run a package: `SpeculativeDecoder`, its parameters, results and errors.

The export, the commands and services use it; it may use NumPy, tokenizers, Jinja2 and the
engines, and never torch or transformers.

from specdec.runtime import SamplingParams, SpeculativeDecoder

with SpeculativeDecoder.load("package") as decoder:
    result = decoder.generate("Once upon a time", SamplingParams(max_new_tokens=64))
    print(result.text, result.stats.tokens_per_second)
"""

from specdec.engines.release import VERSION
from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.decoding.results import Chunk, GenerationResult
from specdec.runtime.decoding.session import Session
from specdec.runtime.decoding.stats import GenerationStats
from specdec.runtime.decoding.stream import GenerationStream
from specdec.runtime.errors import (
    BusyError,
    ClosedError,
    ContextOverflowError,
    DeviceError,
    EngineError,
    ForkedError,
    InvalidParameterError,
    MissingDependencyError,
    NotBegunError,
    NoTokenLeftError,
    NumericalError,
    OutputError,
    PackageError,
    PackageIntegrityError,
    PackageVersionError,
    PromptError,
    SpecdecError,
    UnsupportedOptionError,
)
from specdec.runtime.sampling.effects import options_without_effect
from specdec.runtime.sampling.logprobs import Logprob, TokenLogprobs
from specdec.runtime.sampling.params import SamplingParams

__all__ = [
    "BusyError",
    "Chunk",
    "ClosedError",
    "ContextOverflowError",
    "DeviceError",
    "EngineError",
    "ForkedError",
    "GenerationResult",
    "GenerationStats",
    "GenerationStream",
    "InvalidParameterError",
    "Logprob",
    "MissingDependencyError",
    "NoTokenLeftError",
    "NotBegunError",
    "NumericalError",
    "OutputError",
    "PackageError",
    "PackageIntegrityError",
    "PackageVersionError",
    "PromptError",
    "SamplingParams",
    "Session",
    "SpecdecError",
    "SpeculativeDecoder",
    "TokenLogprobs",
    "UnsupportedOptionError",
    "__version__",
    "options_without_effect",
]

__version__ = VERSION
"""Version of the distribution, such as "0.1.0"."""
