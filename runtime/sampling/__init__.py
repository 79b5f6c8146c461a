"""From logits to tokens, exactly: options, distributions, verification and randomness.

Pure functions and small records over arrays. Everything in the runtime may use it; it may use
NumPy, `runtime.errors`, `runtime.checks` and the reductions of the engines.
"""
