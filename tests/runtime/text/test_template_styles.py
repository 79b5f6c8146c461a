"""Prompts of every template style: text and ids are transformers' own, refusals included."""

from __future__ import annotations

import re
from typing import Any

import pytest

from specdec.runtime import PromptError
from specdec.runtime.text.chat import ChatTemplate
from specdec.runtime.text.codec import TextCodec
from specdec.runtime.text.prompts import PromptReader
from tests.runtime.text.template_styles import STYLES
from tests.support.small_tokenizers import byte_level

transformers = pytest.importorskip("transformers", reason="compares with its templates")

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
USER = {"role": "user", "content": "Is 1 < 2 & 'yes'?"}
CALL = {
    "type": "function",
    "function": {"name": "add", "arguments": {"a": "<1>", "b": ["é", None]}},
}
ODD = "你好, naïve \U0001f600\u200d\U0001f525 \u202eabc ﬁ e\u0301 <tool>"
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one question": [USER],
    "system": [{"role": "system", "content": " Be brief.\n"}, USER],
    "several turns": [
        USER,
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes. "},
        {"role": "user", "content": "Why?\n\n"},
        {"role": "assistant", "content": "So."},
        {"role": "user", "content": "</s><|im_end|> and?"},
    ],
    "unicode": [{"role": "user", "content": ODD}],
    "tool turns": [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": '{"sum": 3}'},
        {"role": "tool", "content": "4"},
        {"role": "user", "content": "And?"},
    ],
    "wrong order": [USER, USER],
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "adds <numbers> & 'more' — é",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    },
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {}}},
]
ARGUMENTS: list[dict[str, Any]] = [{}, {"enable_thinking": False, "date_string": "1 Jan 2030"}]


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    path = tmp_path_factory.mktemp("styles") / "tokenizer.json"
    byte_level().save(str(path))
    return TextCodec(path)


@pytest.fixture(scope="module")
def reference() -> Any:
    return transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level(), **SPECIAL)


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("style", STYLES)
def test_equals_transformers(
    style: str, conversation: str, tools: Any, codec: TextCodec, reference: Any
) -> None:
    template = ChatTemplate(STYLES[style], SPECIAL)
    reader = PromptReader(codec, template, 0, 332, 4096)
    messages = CONVERSATIONS[conversation]
    for arguments in ARGUMENTS:
        given = {"tools": tools, "chat_template": STYLES[style], **arguments}
        try:
            text = reference.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **given
            )
        except Exception as error:  # what a template refuses there is refused here
            with pytest.raises(PromptError, match=re.escape(str(error).strip())):
                reader.encode(messages, tools, arguments)
            continue
        assert template.render(messages, tools, True, arguments) == text
        ids = reference.apply_chat_template(messages, add_generation_prompt=True, **given)
        assert reader.encode(messages, tools, arguments) == list(ids)
        text = reference.apply_chat_template(messages, tokenize=False, **given)
        assert template.render(messages, tools, False, arguments) == text


def test_every_style_renders_most_conversations(reference: Any) -> None:
    """So the comparison above is one of texts, not of refusals."""
    for style, source in STYLES.items():
        rendered = 0
        for messages in CONVERSATIONS.values():
            try:
                ChatTemplate(source, SPECIAL).render(messages)
            except PromptError:
                continue
            rendered += 1
        assert rendered >= {"gemma": 3, "mistral": 4}.get(style, 6), style


def test_variables_reach_the_template() -> None:
    qwen = ChatTemplate(STYLES["qwen"], SPECIAL)
    assert not qwen.render([USER]).endswith("</think>\n\n")
    assert qwen.render([USER], arguments={"enable_thinking": False}).endswith("</think>\n\n")
    documents = ChatTemplate("{% for d in documents %}{{ d.text }};{% endfor %}", {})
    assert (
        documents.render([USER], arguments={"documents": [{"text": "a"}, {"text": "b"}]}) == "a;b;"
    )
    own = ChatTemplate("{{ bos_token }}", SPECIAL)
    assert own.render([USER], arguments={"bos_token": "other"}) == "other"


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_what_the_request_says_is_no_variable(name: str) -> None:
    with pytest.raises(PromptError, match=f"chat_template_kwargs holds {name}; "):
        ChatTemplate("x", {}).render([USER], arguments={name: []})
    with pytest.raises(PromptError, match="chat_template_kwargs is list; allowed is a mapping"):
        ChatTemplate("x", {}).render([USER], arguments=[name])  # type: ignore[arg-type]


def test_without_a_default_a_name_is_needed() -> None:
    templates = {"tool_use": "t{{ tools[0].name }}", "rag": "r"}
    with pytest.raises(PromptError, match=r"no default chat template; choose .*: rag, tool_use"):
        ChatTemplate(templates, {}).render([USER])
    assert ChatTemplate(templates, {}).render([USER], [{"name": "x"}]) == "tx"
    assert ChatTemplate(templates, {}, "rag").render([USER], [{"name": "x"}]) == "r"
