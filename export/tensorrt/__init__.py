"""TensorRT: graphs of standard operators, their precisions, and the engines built from them.

The pipeline uses it; it may use `editing`, `graphs`, `weights` and `calibration`.
"""
