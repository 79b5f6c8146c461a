"""A Hugging Face folder with a tiny random Llama and a byte-level tokenizer."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers


def write_tiny_source(
    root: Path, seed: int = 0, *, max_length: int = 64, spread: float = 0.02
) -> Path:
    """Write the folder (a vocabulary of 257 tokens, weights of this spread) and return it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    wrapped.chat_template = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    wrapped.save_pretrained(root)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(wrapped),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_length,
        initializer_range=spread,
        eos_token_id=wrapped.eos_token_id,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(root)
    return root
