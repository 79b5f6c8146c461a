"""Packages of a given size with random weights, to time a pair before it is trained.

The benchmarks and `specdec-bench` use it; it may use every other folder of the export.
"""
