"""Measurements and their statistics: engine passes, generations, memory, the machine, the prompts.

The report, `bench`, the audit's callers and the benchmarks use it; it may use the decoder, the
engines, and `report.contents` and `report.records`.
"""
