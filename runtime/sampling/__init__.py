"""From logits to tokens, exactly: options, distributions, verification and randomness.

Pure functions and small records over arrays. Everything in the runtime may use it; it uses
NumPy and nothing else of the runtime but `errors` and `checks`.
"""
