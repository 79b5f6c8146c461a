"""Model sources: folders, GGUF files, the hub, the demo model, and their tokenizers.

The pipeline uses it; it may use transformers, and no folder that makes graphs.
"""
