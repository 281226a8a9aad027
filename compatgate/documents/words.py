"""Describe changes of documents in words, and as a difference of their YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import unified_diff
from typing import Any

from compatgate.documents.specs import Change, FieldChange
from compatgate.documents.text import to_yaml

_MAX_NAMED = 5
_LONGEST = 160


def describe_change(change: Change) -> list[str]:
    """Return what a change does, a sentence for each value."""
    one = f"{change.kind.lower()} {change.name}"
    if change.after is None:
        return [f"delete {one}{_summary(change.kind, change.before or {})}"]
    if change.before is None:
        return [f"add {one}{_summary(change.kind, change.after)}"]
    return [f"{one}: {_describe_field(field)}" for field in change.fields]


def diff_yaml(change: Change, context: int = 3) -> str:
    """Return a change as a unified difference of YAML."""
    before, after = (
        to_yaml([body]).splitlines() if body else [] for body in (change.before, change.after)
    )
    name = f"{change.kind}/{change.name}"
    sides = (name if change.before else "/dev/null", name if change.after else "/dev/null")
    return "\n".join(unified_diff(before, after, *sides, n=context, lineterm=""))


def _summary(kind: str, body: Mapping[str, Any]) -> str:
    words = "".join(f", {part}" for part in _parts(kind, body.get("spec", {})))
    return _shorten(words)


def _parts(kind: str, spec: Mapping[str, Any]) -> Iterator[str]:
    if kind == "Target":
        for pool in spec.get("pools", [])[:_MAX_NAMED]:
            yield f"pool {pool.get('name')} with {pool.get('gpu')} and driver {pool.get('driver')}"
        return
    if kind == "Entry":
        yield str(spec.get("status"))
    else:
        yield f"rules {' '.join(spec.get('rules', ()))}"
        yield f"until {spec.get('expires')}"
    named = ["every target" if name == "*" else str(name) for name in spec.get("targets", ())]
    more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    yield f"for {' '.join(named[:_MAX_NAMED])}{more}"
    if kind == "Entry":
        yield from (f"{name} {text}" for name, text in spec.get("components", {}).items())


def _describe_field(field: FieldChange) -> str:
    path = field.path.removeprefix("spec.").removeprefix("policy.")
    if path.startswith("pools"):
        _, _, rest = path.partition("pools")
        pool, _, name = rest.strip(".").rpartition(".")
        path = f"{name} of pool {_unquote(pool)}" if pool else f"pool {_unquote(name)}"
    before, after = _to_text(field.before), _to_text(field.after)
    if field.before is None:
        return f"set {path} to {after}"
    if field.after is None:
        return f"remove {path}, which was {before}"
    return f"change {path} from {before} to {after}"


def _unquote(step: str) -> str:
    return step.strip('[]"')


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return _shorten(", ".join(map(_to_text, value)))
    if isinstance(value, dict):
        return _shorten(", ".join(f"{key} {_to_text(item)}" for key, item in value.items()))
    return _shorten(str(value))


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
