"""GGUF files as sources: parts, metadata, tokenizer and weights, each key and tensor accounted for.

`export.sources` and the checks use it; it may use the `gguf` package, `tokenizers` and NumPy.
The package widens the quantized blocks and names the tensors; everything else is read here,
because vocabularies are read in a second this way, and because what is read must be known key by
key. What the keys mean is llama.cpp's; what they become is a transformers configuration.
"""
