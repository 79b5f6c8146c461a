"""Chat templates: messages to prompt text, the way `transformers.apply_chat_template` does it.

A template is Jinja2 source that comes with a model, so it is foreign code: it runs in Jinja2's
immutable sandbox (no attribute access into Python's internals, no changes to the arguments), within
a budget of characters, steps and time, in a thread of its own, which a wish to cancel reaches.
Jinja2 is imported at the first use.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from specdec.runtime.errors import PromptError, SpecdecError
from specdec.runtime.text.budget import Budget, run_traced, text_size

if TYPE_CHECKING:
    import jinja2

    from specdec.runtime.text.sandbox import Sandbox

__all__ = ["ChatTemplate"]


class ChatTemplate:
    """The chat template of a package.

    Args:
        template: Jinja2 source.
        special_tokens: names and texts the template may use: `bos_token`, `eos_token`, ...
    """

    def __init__(self, template: str, special_tokens: Mapping[str, str]) -> None:
        self._source = template
        self._special_tokens = dict(special_tokens)
        self._environment: Sandbox | None = None
        self._compiled: jinja2.Template | None = None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        *,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> str:
        """Return the prompt text of a conversation, special tokens written out.

        Args:
            messages: dicts with `role` (str) and `content` (str, or a list of part dicts);
                `content` may be absent or None beside `tool_calls`. Other keys are passed on.
            tools: JSON schemas of functions the model may call.
            add_generation_prompt: end with the beginning of the assistant's turn.
            cancelled: asked while the template is rendered; True ends it.

        Raises:
            PromptError: the messages are malformed, the template refuses them, is broken, or
                takes more than its `Budget`.
            NotBegunError: `cancelled` said so.
        """
        _check_messages(messages)
        _check_tools(tools)
        names = {
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        budget = Budget(text_size(messages) + text_size(tools), cancelled)
        return run_traced(lambda: self._render(names, budget), budget)

    def _render(self, names: Mapping[str, Any], budget: Budget) -> str:
        """Render in the thread whose budget this is."""
        import jinja2

        try:
            if self._environment is None:
                self._environment = _environment()
            self._environment.budget = budget
            if self._compiled is None:
                self._compiled = self._environment.from_string(self._source)
            return self._compiled.render({**self._special_tokens, **names})
        except SpecdecError:
            raise
        except jinja2.exceptions.SecurityError as error:
            raise PromptError(f"the chat template was stopped: {_line(error)}") from error
        except Exception as error:  # the template is foreign code
            raise PromptError(f"the chat template failed: {_line(error)}") from error


def _environment() -> Sandbox:
    """Return the sandbox with the names chat templates rely on."""
    from specdec.runtime.text.sandbox import Sandbox

    environment = Sandbox({"tojson": _to_json})
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON; Jinja2's own filter escapes HTML characters, which a model must not see."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    """Let a template refuse a conversation."""
    import jinja2

    raise jinja2.exceptions.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    """Write the local time for templates that state the date."""
    return datetime.datetime.now().strftime(pattern)


def _check_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    """Raise PromptError unless `messages` is a non-empty list of well-formed messages."""
    form = "a dict with role and content"
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise PromptError(f"messages is {type(messages).__name__}; allowed is a list, each {form}")
    if not messages:
        raise PromptError(f"messages is empty; give at least one, {form}")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise PromptError(f"message {index} is {type(message).__name__}; allowed is {form}")
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str):
            raise PromptError(
                f"message {index} has role {role!r}; allowed is a string such as 'user'"
            )
        if content is None and message.get("tool_calls"):
            continue
        if not isinstance(content, (str, list, tuple)):
            raise PromptError(
                f"message {index} has content of type {type(content).__name__}; "
                "allowed is a string or a list of parts"
            )


def _check_tools(tools: Sequence[Mapping[str, Any]] | None) -> None:
    """Raise PromptError unless `tools` is None or a list of dicts."""
    form = "a list of dicts, a JSON schema each"
    if tools is None:
        return
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        raise PromptError(f"tools is {type(tools).__name__}; allowed is {form}")
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise PromptError(f"tool {index} is {type(tool).__name__}; allowed is {form}")


def _line(error: Exception) -> str:
    """Return an error's message in one line, its kind where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
