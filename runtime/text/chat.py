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

from specdec.runtime.errors import InvalidParameterError, PromptError, SpecdecError
from specdec.runtime.text.budget import Budget, run_traced, text_size

if TYPE_CHECKING:
    import jinja2

    from specdec.engines.package.reader import Package
    from specdec.runtime.text.sandbox import Sandbox

__all__ = ["ChatTemplate", "package_chat"]

_SET_BY_REQUEST = ("messages", "tools", "add_generation_prompt")


class ChatTemplate:
    """The chat templates of a package.

    Without a name given, `tool_use` is chosen for requests with tools where there is one, else
    `default`, as transformers does.

    Args:
        template: Jinja2 source, or several by name.
        special_tokens: names and texts the template may use: `bos_token`, `eos_token`, ...
        name: the template to use for every request.

    Raises:
        InvalidParameterError: there is no template of this name.
    """

    def __init__(
        self,
        template: str | Mapping[str, str],
        special_tokens: Mapping[str, str],
        name: str | None = None,
    ) -> None:
        self._sources = {"default": template} if isinstance(template, str) else dict(template)
        if name is not None and name not in self._sources:
            raise InvalidParameterError(
                f"chat_template is {name!r}; allowed is {', '.join(sorted(self._sources))}"
            )
        self._name = name
        self._special_tokens = dict(special_tokens)
        self._compiled: dict[str, tuple[Sandbox, jinja2.Template]] = {}
        """Each with its environment; threads that compile one at once may each do so."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        arguments: Mapping[str, Any] | None = None,
        *,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> str:
        """Return the prompt text of a conversation, special tokens written out.

        Args:
            messages: dicts with `role` (str) and `content` (str, or a list of part dicts);
                `content` may be absent or None beside `tool_calls`. Other keys are passed on.
            tools: JSON schemas of functions the model may call.
            add_generation_prompt: end with the beginning of the assistant's turn.
            arguments: further variables of the template by name, such as `enable_thinking` or
                `documents`.
            cancelled: asked while the template is rendered; True ends it.

        Raises:
            PromptError: the messages or the arguments are malformed, the template refuses them,
                is broken, or takes more than its `Budget`.
            NotBegunError: `cancelled` said so.
        """
        _check_messages(messages)
        _check_tools(tools)
        arguments = _checked_arguments(arguments)
        name = self._choose(tools)
        names = {
            "documents": None,
            **self._special_tokens,
            **arguments,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        budget = Budget(text_size((messages, arguments)) + text_size(tools), cancelled)
        return run_traced(lambda: self._render(name, names, budget), budget)

    def _render(self, name: str, names: Mapping[str, Any], budget: Budget) -> str:
        """Render in the thread whose budget this is."""
        import jinja2

        try:
            found = self._compiled.get(name)
            environment = _environment() if found is None else found[0]
            environment.budget = budget
            if found is None:
                found = environment, environment.from_string(self._sources[name])
                self._compiled[name] = found
            return found[1].render(names)
        except SpecdecError:
            raise
        except jinja2.exceptions.SecurityError as error:
            raise PromptError(f"the chat template was stopped: {_line(error)}") from error
        except Exception as error:  # the template is foreign code
            raise PromptError(f"the chat template failed: {_line(error)}") from error

    def _choose(self, tools: Sequence[Mapping[str, Any]] | None) -> str:
        """The name of the template for a request."""
        if self._name is not None:
            return self._name
        name = "tool_use" if tools is not None and "tool_use" in self._sources else "default"
        if name not in self._sources:
            raise PromptError(
                "the package has no default chat template; choose one of its own: "
                f"{', '.join(sorted(self._sources))}"
            )
        return name


def package_chat(package: Package, name: str | None = None) -> ChatTemplate | None:
    """The chat templates of a package, None when it has none.

    Raises:
        InvalidParameterError: there is no template called `name`.
    """
    templates = dict(package.chat_templates)
    if package.chat_template is not None:
        templates["default"] = package.chat_template
    if name is None and not templates:
        return None
    if not templates:
        raise InvalidParameterError(
            f"chat_template is {name!r} and the package has no chat template; leave it out"
        )
    return ChatTemplate(templates, package.special_tokens, name)


def _checked_arguments(arguments: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Raise PromptError unless `arguments` is a mapping of names that a request does not set."""
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping) or not all(isinstance(name, str) for name in arguments):
        raise PromptError(
            f"chat_template_kwargs is {type(arguments).__name__}; allowed is a mapping of names "
            "to values"
        )
    taken = next((name for name in _SET_BY_REQUEST if name in arguments), None)
    if taken is not None:
        raise PromptError(
            f"chat_template_kwargs holds {taken}; the request itself says that: leave it out"
        )
    return arguments


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
