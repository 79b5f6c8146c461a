"""The draft-verify loop: rounds, generations, streams, sessions and their results.

`runtime.decoder` uses it; it may use `drafting`, `sampling`, `text` and the engines.
"""
