"""The HTTP server: OpenAI's wire format over `AsyncDecoder`, metrics, and a page to try it.

The commands and deployments may use it; it may use the rest of `runtime.serving`, Starlette,
pydantic and prometheus-client.
"""
