"""The draft-verify loop: rounds, generations, streams, sessions, and what they hand back.

`specdec.runtime.decoder` stands on it; it may use `drafting`, `sampling`, `text` and the engines.
"""
