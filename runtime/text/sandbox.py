"""Jinja2's sandbox for chat templates, with every way to make a large value bounded.

Jinja2's own sandbox keeps a template away from Python's internals and from its arguments. It does
not keep it from `'x' * 10**9`. Here whatever makes a value charges a `Budget`: operators, `~`,
filters, calls, blocks and the output. Where one operation can multiply sizes (`runtime.text.sizes`)
the size is found before the value is made.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specdec.runtime.text import sizes
from specdec.runtime.text.budget import Budget

__all__ = ["Sandbox"]

_REMOVED = ("lipsum",)


class _Generation(Extension):
    """`{% generation %} .. {% endgeneration %}` marks text for training; here plain text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Code(CodeGenerator):
    """`a ~ b` asks the environment, which knows the budget."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one template; each thread that renders sets a `budget` of its own."""

    code_generator_class = _Code
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, filters: dict[str, Callable[..., Any]]) -> None:
        """Make the environment.

        Args:
            filters: added to Jinja2's own, or in their place.
        """
        self._of_thread = threading.local()
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, loopcontrols],
            finalize=self._written,
            optimized=False,  # constants are computed within the budget too
        )
        self.concat = self.joined  # type: ignore[method-assign]
        for name in _REMOVED:
            del self.globals[name]
        self.filters |= filters
        self.filters = {name: self._bounded(name, one) for name, one in self.filters.items()}

    @property
    def budget(self) -> Budget:
        """What this thread's rendering may cost."""
        found: Budget = self._of_thread.budget
        return found

    @budget.setter
    def budget(self, budget: Budget) -> None:
        self._of_thread.budget = budget

    def joined(self, parts: Iterable[Any]) -> str:
        """The parts as one text."""
        texts = [part if isinstance(part, str) else str(self._written(part)) for part in parts]
        self.budget.charge(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator."""
        sizes.check_operator(self.budget, operator, left, right)
        return self._charged(super().call_binop(context, operator, left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call anything a template may call."""
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, (str, bytes, int, float)):
            name = str(getattr(__obj, "__name__", ""))
            sizes.check_method(__self.budget, name, owner, args, kwargs)
        return __self._charged(super().call(__context, __obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """What `text.format` is in a template (Jinja2 3.1.5 and later)."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def formatted(*args: Any, **kwargs: Any) -> str:
            sizes.check_format(self.budget, value.__self__, (*args, *kwargs.values()))
            return str(self._charged(wrapped(*args, **kwargs)))

        return formatted

    def format_string(self, s: str, args: Any, kwargs: Any, format_func: Any = None) -> str:
        """What `text.format` calls in earlier releases of Jinja2."""
        sizes.check_format(self.budget, s, (*args, *kwargs.values()))
        make = super().format_string  # type: ignore[misc]
        return str(self._charged(make(s, args, kwargs, format_func)))

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        passes = hasattr(function, "jinja_pass_arg")

        @functools.wraps(function)  # keeps what Jinja2 looks for: which context it wants
        def call(*args: Any, **kwargs: Any) -> Any:
            first = 1 if passes else 0
            value, rest = args[first], args[first + 1 :]
            value = sizes.check_filter(self.budget, name, value, rest, kwargs)
            return self._charged(function(*args[:first], value, *rest, **kwargs))

        return call

    def _written(self, value: Any) -> Any:
        """A value that is about to become text."""
        if not isinstance(value, str):
            sizes.weigh(self.budget, value)
        return value

    def _charged(self, value: Any) -> Any:
        if isinstance(value, (str, bytes, list, tuple)):
            self.budget.charge(len(value))
        return value
