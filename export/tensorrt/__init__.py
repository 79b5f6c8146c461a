"""TensorRT: standard graphs, their precisions, and the engines built from them.

The pipeline uses it; it may use `graphs`, `weights` and `calibration`.
"""
