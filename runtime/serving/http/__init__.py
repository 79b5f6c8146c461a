"""The HTTP server: OpenAI's wire format over `AsyncDecoder`, metrics, and a page to try it.

`specdec-serve` and the Ray deployment use it; it uses `runtime.serving`, Starlette (a small,
well-kept ASGI toolkit without what we do not need), pydantic and prometheus-client.
"""
