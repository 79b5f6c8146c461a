"""Text in, text out: the tokenizer of a package and the text of one generation.

`TextCodec` turns text into ids and back; `OutputText` turns a growing list of ids into text
that can be shown at once, and finds stop strings in it.
"""

from specdec.runtime.output_text import OutputText
from specdec.runtime.text_codec import TextCodec

__all__ = ["OutputText", "TextCodec"]
