"""A chat template ends within its budget of characters, steps and seconds, or when cancelled."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from specdec.engines.slots import EngineSlots
from specdec.runtime import SamplingParams
from specdec.runtime.errors import NotBegunError, PromptError
from specdec.runtime.serving import BatchDecoder
from specdec.runtime.text import budget as budgets
from specdec.runtime.text.budget import text_size
from specdec.runtime.text.chat import ChatTemplate
from tests.hostile.templates import TEMPLATES
from tests.support.decoders import letter_codec, pair
from tests.support.table_engine import TableEngine, random_table

MESSAGES = [{"role": "user", "content": "a"}]
ENDLESS = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twentieth of the budget, so that the tests take seconds."""
    monkeypatch.setattr(budgets, "_STEPS", (100_000, 4))
    monkeypatch.setattr(budgets, "_CHARACTERS", (1_200_000, 64))


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_template_that_takes_everything_is_stopped(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, reason = TEMPLATES[name]
    if "select" in template:
        monkeypatch.setattr(budgets.Budget.__init__, "__defaults__", (0.5,))
    with pytest.raises(PromptError, match=reason) as caught:
        ChatTemplate(template, {}).render(MESSAGES)
    assert "\n" not in str(caught.value)
    assert sys.gettrace() is None or "coverage" in repr(sys.gettrace())


def test_the_budget_grows_with_the_messages() -> None:
    """A template may write each message many times over."""
    content = "x" * 1_000_000
    loop = "{% for i in range(20) %}{{ m.content }}{% endfor %}"
    template = "{% for m in messages %}" + loop + "{% endfor %}"
    text = ChatTemplate(template, {}).render([{"role": "user", "content": content}])
    assert len(text) == 20_000_000


def test_a_long_conversation_stays_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget of a release, and a template with all the usual parts."""
    monkeypatch.undo()
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ '<user>' + m.content | trim }}"
        "{% elif m.tool_calls %}{{ m.tool_calls | tojson(indent=2) }}{% else %}"
        "{{ '<assistant>' ~ m['content'].replace('a', 'b') }}{% endif %}{% endfor %}"
    )
    turn = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}]
    text = ChatTemplate(template, {}).render(turn * 5000)
    assert text == "<user>a<assistant>b" * 5000


@pytest.mark.parametrize(
    ("value", "size"),
    [("abc", 3), (["a", "bc"], 5), ({"role": "x", "n": [1, None]}, 10), (None, 1)],
)
def test_sizes_count_every_item(value: Any, size: int) -> None:
    assert text_size(value) == size


def test_messages_that_nest_without_end_are_refused() -> None:
    value: Any = "x"
    for _ in range(5000):
        value = [value]
    with pytest.raises(PromptError, match="nest deeper than 100 levels"):
        ChatTemplate("x", {}).render([{"role": "user", "content": value}])


def test_cancel_reaches_a_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    decoder, _, _ = pair(
        8, codec=letter_codec(tmp_path), chat=ChatTemplate(ENDLESS, {}), max_length=64
    )
    errors: list[BaseException] = []

    def generate() -> None:
        try:
            decoder.generate(MESSAGES)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=generate)
    thread.start()
    while not any(t.name == "specdec-template" for t in threading.enumerate()):
        time.sleep(0.001)
    while thread.is_alive():
        decoder.cancel()
        thread.join(0.01)
    (error,) = errors
    assert isinstance(error, NotBegunError)
    assert error.code == 36
    assert str(error).startswith("cancelled, or out of time, while the chat template was rendered")
    assert decoder.generate([0, 1]).finish_reason == "context"


def test_a_deadline_reaches_a_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    slots = EngineSlots([TableEngine(random_table(0, 8))])
    chat = ChatTemplate(ENDLESS, {})
    with BatchDecoder(slots, codec=letter_codec(tmp_path), chat=chat) as decoder:
        with pytest.raises(NotBegunError, match="out of time"):
            decoder.generate(MESSAGES, timeout=0.05)
        assert decoder.generate([0, 1], SamplingParams(max_new_tokens=2)).token_ids
