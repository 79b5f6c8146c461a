"""Benchmarks of loaded packages: settings, interleaved runs, energy, tables of a comparison.

`specdec-bench` and the benchmarks use it; it may use `measuring`, `drawing` and the decoder.
"""
