"""What changes between two sets of documents, document by document and field by field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from msgspec import Struct

from compatgate.documents.problems import Path, dotted
from compatgate.documents.specs import KINDS, Document, Kind, key_of, to_body

Action = Literal["create", "change", "delete"]


class FieldChange(Struct, frozen=True):
    """One value that differs; None where there is none."""

    path: str
    before: Any
    after: Any

    def to_json(self) -> dict[str, Any]:
        """``{"path", "before", "after"}``."""
        return {"path": self.path, "before": self.before, "after": self.after}


class Change(Struct, frozen=True):
    """A document that is made, changed or deleted; ``before`` and ``after`` are plain data."""

    kind: Kind
    name: str
    action: Action
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    @property
    def fields(self) -> tuple[FieldChange, ...]:
        """The values that differ; empty unless both sides exist."""
        if self.before is None or self.after is None:
            return ()
        return tuple(_compare((), self.before, self.after))

    def to_json(self) -> dict[str, Any]:
        """The change as answers carry it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "action": self.action,
            "before": self.before,
            "after": self.after,
            "fields": [field.to_json() for field in self.fields],
        }


def change(before: Document | None, after: Document | None) -> Change | None:
    """The difference between two versions of a document; None when they say the same."""
    document = after or before
    if document is None or before == after:
        return None
    kind, name = key_of(document)
    action: Action = "create" if before is None else "delete" if after is None else "change"
    return Change(
        kind, name, action, to_body(before) if before else None, to_body(after) if after else None
    )


def compare(before: Iterable[Document], after: Iterable[Document]) -> list[Change]:
    """What turns one set of documents into another: targets first, then by name."""
    old = {key_of(document): document for document in before}
    new = {key_of(document): document for document in after}
    found = [change(old.get(key), new.get(key)) for key in old.keys() | new.keys()]
    return sorted((c for c in found if c is not None), key=lambda c: (KINDS.index(c.kind), c.name))


def _compare(path: Path, before: Any, after: Any) -> Iterator[FieldChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(k for k in after if k not in before)]:
            yield from _compare((*path, key), before.get(key), after.get(key))
    elif _named(before) and _named(after):
        yield from _compare(path, _by_name(before), _by_name(after))
    elif before != after:
        yield FieldChange(dotted(path), before, after)


def _named(value: Any) -> bool:
    """Pools are compared by name, not by position."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and "name" in item for item in value)
    )


def _by_name(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {item["name"]: item for item in items}
