"""Compile the rules of the service's addresses once in a process, and not for each application.

Werkzeug reads each rule's text and makes two functions of it by compiling Python: most of the time
that it takes to make an application, and nearly every test of the web has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from werkzeug.routing import Rule


class _Compiled(NamedTuple):
    """What werkzeug makes of the text of a rule, for any rule of that text."""

    parts: Any
    trace: Any
    converters: Any
    arguments: frozenset[str]
    build: Callable[..., Any]
    build_unknown: Callable[..., Any]


_compile: Callable[[Rule], None] = Rule.compile
_COMPILED: dict[tuple[str, bool | None], _Compiled] = {}


def _compile_once(rule: Any) -> None:
    if rule.defaults or rule.subdomain or rule.host:
        return _compile(rule)
    key = (rule.rule, rule.merge_slashes)
    if key not in _COMPILED:
        _compile(rule)
        _COMPILED[key] = _Compiled(
            rule._parts, rule._trace, rule._converters, frozenset(rule.arguments),
            rule._build.__func__, rule._build_unknown.__func__,
        )  # fmt: skip
    known = _COMPILED[key]
    rule._parts, rule._trace, rule._converters = known.parts, known.trace, known.converters
    rule.arguments |= known.arguments
    rule._build = known.build.__get__(rule)
    rule._build_unknown = known.build_unknown.__get__(rule)
    return None


def pytest_configure() -> None:
    """Remember what is compiled."""
    Rule.compile = _compile_once  # type: ignore[method-assign]
