"""Chat templates, compared with `transformers` where it is installed."""

import subprocess
import sys
from typing import Any

import pytest

from specdec.runtime.errors import PromptError
from specdec.runtime.text.chat import ChatTemplate

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = """{{- bos_token }}
{%- for message in messages %}
    {%- set body = message['content'] | trim %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + body + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""
TOOLS = """{% if tools %}
Tools:
  {% for tool in tools %}
{{ tool | tojson }}
{{ tool | tojson(indent=2) }}
  {% endfor %}
{% endif %}
{% for message in messages %}
    {% if message.tool_calls is defined and message.tool_calls %}
{{ message.role }} calls {{ message.tool_calls | tojson }}
    {% else %}
{{ message.role }}: {{ message.content }}{{ eos_token }}
    {% endif %}
{% endfor %}"""
MARKED = (
    "{% for message in messages %}{% if message.role == 'skip' %}{% continue %}{% endif %}"
    "{% generation %}{{ message.content }}{% endgeneration %};{% endfor %}"
)
USER = {"role": "user", "content": "Is 1 < 2 & 'yes'? 你好 "}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    USER,
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "Why?\n"},
]
CALLS: list[dict[str, Any]] = [
    USER,
    {"role": "assistant", "tool_calls": [{"name": "add", "arguments": {"a": "<1>", "b": "é"}}]},
    {"role": "tool", "content": "3"},
]
TOOL = {"name": "add", "description": "adds <numbers>", "parameters": {"b": 1, "a": [True, None]}}


def test_chatml() -> None:
    assert ChatTemplate(CHATML, SPECIAL).render([USER]) == (
        "<|im_start|>system\nYou are helpful.<|im_end|>\n"
        "<|im_start|>user\nIs 1 < 2 & 'yes'? 你好 <|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("template", "messages", "tools"),
    [
        (CHATML, CHAT, None),
        (LLAMA3, CHAT, None),
        (TOOLS, CALLS, [TOOL]),
        (TOOLS, CHAT, None),
        (MARKED, CHAT, None),
    ],
    ids=["chatml", "llama3", "tools", "tools-unused", "generation-blocks"],
)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_equals_transformers(
    template: str,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    add_generation_prompt: bool,
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    reference = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), **SPECIAL
    )
    expected = reference.apply_chat_template(
        messages,
        tools=tools,
        chat_template=template,
        tokenize=False,
        add_generation_prompt=add_generation_prompt,
    )
    got = ChatTemplate(template, SPECIAL).render(messages, tools, add_generation_prompt)
    assert got == expected


def test_the_date_is_there() -> None:
    got = ChatTemplate("{{ strftime_now('%Y') }}", {}).render([USER])
    assert got.isdigit()
    assert len(got) == 4


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__ }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ '%s' | format(self.__init__.__globals__) }}",
        "{{ range(10000000) | list }}",
    ],
)
def test_a_hostile_template_is_stopped(template: str) -> None:
    messages = [dict(USER)]
    with pytest.raises(PromptError) as caught:
        ChatTemplate(template, SPECIAL).render(messages)
    assert "\n" not in str(caught.value)
    assert messages == [USER]


def test_a_template_may_refuse() -> None:
    template = "{{ raise_exception('roles must\nalternate') }}"
    with pytest.raises(PromptError, match=r"^the chat template failed: roles must alternate$"):
        ChatTemplate(template, {}).render([USER])


def test_a_broken_template_is_one_line() -> None:
    with pytest.raises(PromptError, match=r"^the chat template failed: .*endfor") as caught:
        ChatTemplate("{% for x in messages %}", {}).render([USER])
    assert "\n" not in str(caught.value)
    with pytest.raises(PromptError, match="failed"):
        ChatTemplate("{{ 'a' + messages[0].number }}", {}).render([{**USER, "number": 1}])


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "messages is empty"),
        ("hello", "messages is str"),
        (USER, "messages is dict"),
        (["hello"], "message 0 is str"),
        ([USER, {"content": "x"}], "message 1 has role None"),
        ([{"role": "user"}], "message 0 has content of type NoneType"),
        ([{"role": "user", "content": 3}], "message 0 has content of type int"),
    ],
)
def test_malformed_messages_are_refused(messages: Any, reason: str) -> None:
    with pytest.raises(PromptError, match=f"^{reason}; "):
        ChatTemplate(CHATML, SPECIAL).render(messages)


def test_special_tokens_cannot_replace_the_messages() -> None:
    assert ChatTemplate("{{ messages[0].role }}", {"messages": "no"}).render([USER]) == "user"


TOGETHER = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from specdec.runtime.text.chat import ChatTemplate

template, start = ChatTemplate("{{ messages[0].content ~ '!' }}", {}), Barrier(8)

def render(number):
    start.wait()
    return template.render([{"role": "user", "content": str(number)}])

with ThreadPoolExecutor(8) as pool:
    print(*pool.map(render, range(8)))
"""


def test_threads_may_render_at_once_from_the_first_time() -> None:
    """In a fresh process, where all of them wait for the import of Jinja2 and then compile."""
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split() == [f"{number}!" for number in range(8)]
