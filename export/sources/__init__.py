"""Where models come from: sources, the hub, tokenizers, and what can be refused early.

The pipeline uses it; it may use transformers, and nothing of the graphs that are made later.
"""
