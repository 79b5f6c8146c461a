"""Chat templates that would take all memory or all time, each with what stops it."""

from __future__ import annotations

CHARACTERS = r"it makes more than \d+ characters of these messages"
INTEGER = "is given an integer above 100000"
BITS = "an integer of more than 4096 bits"
WIDTH = "a format with a width"
STEPS = r"was stopped after \d+ steps"

_NESTED = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
_DOUBLED = (
    "{% set ns = namespace(x='abcdefgh') %}"
    "{% for i in range(60) %}{% set ns.x = BODY %}{% endfor %}"
)
_SHARED = (
    "{% set ns = namespace(x=['abcdefgh']) %}"
    "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
)


def _doubled(body: str) -> tuple[str, str]:
    return _DOUBLED.replace("BODY", body), CHARACTERS


TEMPLATES = {
    "nested loops": (_NESTED, STEPS),
    "nested filters": (
        "{{ range(99999) | select('in', range(99999) | list) | list | length }}{{ 1 / 0 }}",
        r"was stopped after 0\.5 s",
    ),
    "a macro that calls itself": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    "a text times a number": ("{{ 'x' * 10**9 }}", CHARACTERS),
    "a number times a text": ("{{ 10**9 * 'x' }}", CHARACTERS),
    "a list times a number": ("{{ ['x'] * 10**9 }}", CHARACTERS),
    "a power": ("{{ 10 ** (10 ** 10) }}", BITS),
    "a product of numbers": (
        "{% set ns = namespace(x=3) %}{% for i in range(40) %}{% set ns.x = ns.x * ns.x %}"
        "{% endfor %}",
        BITS,
    ),
    "doubled by +": _doubled("ns.x + ns.x"),
    "doubled by ~": _doubled("ns.x ~ ns.x"),
    "doubled by join": _doubled("[ns.x, ns.x] | join(ns.x)"),
    "doubled by a text's join": _doubled("ns.x.join([ns.x, ns.x])"),
    "doubled by replace": _doubled("ns.x | replace('a', ns.x)"),
    "doubled by a text's replace": (
        _DOUBLED.replace("BODY", "ns.x.replace('a', ns.x)"),
        CHARACTERS,
    ),
    "doubled by format": _doubled("'{}{}'.format(ns.x, ns.x)"),
    "doubled by %": _doubled("'%s%s' % (ns.x, ns.x)"),
    "doubled by a block": (
        "{% set ns = namespace(x='abcdefgh') %}{% for i in range(60) %}"
        "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
        CHARACTERS,
    ),
    "a shared list written": (_SHARED + "{{ ns.x }}", CHARACTERS),
    "a shared list as JSON": (_SHARED + "{{ ns.x | tojson }}", CHARACTERS),
    "a shared list as text": (_SHARED + "{{ 'x' ~ ns.x }}", CHARACTERS),
    "a shared list formatted": (_SHARED + "{{ '%s' % ns.x }}", CHARACTERS),
    "one text many times": (
        "{% set x = 'x' * 1000000 %}{{ range(99999) | map('replace', 1, x) | join(x) | length }}",
        CHARACTERS,
    ),
    "output that never ends": (
        "{% set x = 'x' * 100000 %}{% for i in range(2000) %}{{ x }}{% endfor %}",
        CHARACTERS,
    ),
    "a width of a filter": ("{{ 'x' | center(10**9) }}", INTEGER),
    "a width of a method": ("{{ 'x'.ljust(10**9) }}", INTEGER),
    "zeros of a method": ("{{ '1'.zfill(10**9) }}", INTEGER),
    "bytes of a number": ("{{ (5).to_bytes(10**9, 'big') }}", INTEGER),
    "an indent of JSON": ("{{ [1] | tojson(indent=10**9) }}", INTEGER),
    "a batch": ("{{ [1] | batch(10**9, 'x') | list }}", INTEGER),
    "a width in %": ("{{ '%1000000000d' % 1 }}", WIDTH),
    "a width given to %": ("{{ '%*d' % (1000000000, 1) }}", WIDTH),
    "a width in format": ("{{ '{:1000000000}'.format(1) }}", WIDTH),
    "a width given to format": ("{{ '{:{}}'.format(1, 1000000000) }}", WIDTH),
    "filler text": ("{{ lipsum(n=10000) }}", "'lipsum' is undefined"),
}
"""Name -> (template, pattern of the message)."""
