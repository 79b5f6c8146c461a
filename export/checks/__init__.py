"""Is what was built what was meant? References of the original weights, and checks against them.

The pipeline uses it; it may use the engines, the runtime's report, and torch models.
"""
