"""Compile the rules of the service's addresses once in a process, and not for each application.

Werkzeug makes two functions of each rule, from the rule's text alone, by compiling Python: most of
the time that it takes to make an application, and nearly every test of the web has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from werkzeug.routing import Rule

_compile: Callable[[Rule, bool], Any] = Rule._compile_builder
_COMPILED: dict[tuple[str, bool], Any] = {}


def _compile_once(rule: Rule, append_unknown: bool = True) -> Any:
    if rule.defaults or rule.subdomain or rule.host:
        return _compile(rule, append_unknown)
    key = (rule.rule, append_unknown)
    if key not in _COMPILED:
        _COMPILED[key] = _compile(rule, append_unknown)
    return _COMPILED[key]


def pytest_configure() -> None:
    """Remember what is compiled."""
    Rule._compile_builder = _compile_once  # type: ignore[method-assign]
