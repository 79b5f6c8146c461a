"""Text and token ids: the tokenizer, chat templates, prompts, and text as tokens arrive.

`decoding` and `decoder` use it; it may use `tokenizers`, `jinja2` and `sampling.params`.
"""
