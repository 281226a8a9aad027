"""Show a document as the fields of a form, and write changed fields into the document.

Fields hold the common part of a document; its YAML holds all of it. A field that nobody changed
leaves the document alone, so that what only the YAML says is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from compatgate.documents.sources import FieldPath, format_path
from compatgate.documents.specs import Kind
from compatgate.errors import BadInput, CompatgateError
from compatgate.service.waivers.service import parse_components, split_words

MAX_POOLS = 40
"""Pools that have fields; the YAML shows all."""
POOL_FIELDS = ("name", "gpu", "driver", "count")
MAX_VALUES = 2000
"""Values in one field; a longer list belongs in the YAML."""
_YES = "yes"
_ROW = re.compile(rf"(pool-[0-9]{{1,2}})-(?:{'|'.join(POOL_FIELDS)})")
_MISSING = re.compile(r"(\w+) is missing")
Body = dict[str, Any]


class FormField(Struct, frozen=True):
    """A field of a form, and its place in the document.

    Attributes:
        show: returns the text of a value.
        parse: returns the value of a text; None: the document has no such value.
    """

    name: str
    path: FieldPath
    show: Callable[[Any], str]
    parse: Callable[[str], Any]

    def read(self, document: Mapping[str, Any]) -> str:
        """Return the text of the field; empty where the document has no value, or another type."""
        value: Any = document
        for step in self.path:
            if isinstance(step, int):
                value = value[step] if isinstance(value, list) and step < len(value) else None
            else:
                value = value.get(step) if isinstance(value, Mapping) else None
        return self.show(value)

    def write(self, document: Body, text: str) -> None:
        """Write the field into the document."""
        value = self.parse(text)
        if isinstance(value, list | dict) and len(value) > MAX_VALUES:
            problem = f"has {len(value):,} values, and a field takes at most {MAX_VALUES:,}"
            raise BadInput(problem, field=self.name, hint="write a longer list in the YAML")
        place: Any = document
        for depth, step in enumerate(self.path[:-1]):
            following = self.path[depth + 1]
            place = _enter(place, step, [] if isinstance(following, int) else {}, self.path)
        if not isinstance(place, dict):
            raise _wrong_type(self.path)
        if value is None:
            place.pop(self.path[-1], None)
        else:
            place[self.path[-1]] = value


def _enter(place: Any, step: str | int, new: Any, path: FieldPath) -> Any:
    """Return what a container holds at a step; make it where there is nothing."""
    if isinstance(place, list) and isinstance(step, int):
        while len(place) <= step:
            place.append({})
        return place[step]
    if not isinstance(place, dict):
        raise _wrong_type(path)
    if place.get(step) is None:
        place[step] = new
    return place[step]


def _wrong_type(path: FieldPath) -> BadInput:
    hint = "correct the YAML, then change the field"
    return BadInput("the YAML has another type here", field=format_path(path), hint=hint)


def list_fields(kind: Kind, document: Mapping[str, Any]) -> list[FormField]:
    """Return the fields of a document, with those of one more pool than a target has."""
    if kind == "Waiver":
        return list(_waiver_fields())
    return [*_about_fields(), *(_target_fields(document) if kind == "Target" else _entry_fields())]


def show_fields(kind: Kind, document: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each field of a document."""
    return {field.name: field.read(document) for field in list_fields(kind, document)}


def find_wrong_fields(
    kind: Kind, typed: Mapping[str, str], error: CompatgateError
) -> dict[str, str]:
    """Return what is wrong with the fields of a form, by name; a row of a pool is ``pool-0``."""
    paths = {
        format_path(field.path): _ROW.sub(r"\1", field.name)
        for field in list_fields(kind, {"spec": {"pools": [{} for _ in list_rows(typed)]}})
    }
    paths |= {f"spec.pools[{row}]": f"pool-{row}" for row in list_rows(typed)}
    names = set(paths.values()) | {"reason"}
    found: dict[str, list[str]] = {}
    for one in getattr(error, "problems", (error,)):
        place = one.field or ""
        if missing := _MISSING.match(one.problem):
            place = f"{place}.{missing[1]}"
        name = place if place in names else _find_field(place, paths)
        if name:
            hint = f" ({one.hint})" if one.hint else ""
            found.setdefault(name, []).append(f"{one.problem}{hint}")
    return {name: "; ".join(dict.fromkeys(texts)) for name, texts in found.items()}


def list_holders(kind: Kind, typed: Mapping[str, str]) -> list[str]:
    """Return the names of the fields that have room for a mistake; a row of a pool is one."""
    pools: list[Body] = [{} for _ in list_rows(typed)[1:]]
    fields = list_fields(kind, {"spec": {"pools": pools}})
    names = (_ROW.sub(r"\1", f.name) for f in fields if f.name not in ("requireEntry", "canary"))
    return list(dict.fromkeys(names))


def _find_field(place: str, paths: Mapping[str, str]) -> str:
    """Return the field of a place in a document, or of the part that it lies in."""
    while place and place not in paths:
        place = place[: max(place.rfind("."), place.rfind("["), 0)]
    return paths.get(place, "")


def list_rows(fields: Mapping[str, str]) -> list[int]:
    """Return the rows of pools in the fields of a form."""
    rows = {name.split("-")[1] for name in fields if _ROW.fullmatch(name)}
    return sorted(map(int, rows)) or [0]


def _count_pools(document: Mapping[str, Any]) -> int:
    """Return the number of pools that have fields, an empty one included."""
    spec = document.get("spec")
    pools = spec.get("pools") if isinstance(spec, Mapping) else None
    return min(len(pools) if isinstance(pools, list) else 0, MAX_POOLS - 1) + 1


def write_fields(
    kind: Kind, document: Body, shown: Mapping[str, Any], form: Mapping[str, str]
) -> bool:
    """Write the fields that somebody changed into a document; return whether there was one."""
    changed = False
    for field in list_fields(kind, shown):
        if field.name not in form and field.show is not _show_flag:
            continue  # a browser sends every field but boxes without a tick
        text = _normalise(form.get(field.name, ""))
        if text != _normalise(field.read(shown)):
            field.write(document, text)
            changed = True
    if changed and kind == "Target":
        _drop_empty_pools(document)
    return changed


def _normalise(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _drop_empty_pools(document: Body) -> None:
    spec = document.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("pools"), list):
        spec["pools"] = [pool for pool in spec["pools"] if pool != {}]


def _about_fields() -> Iterator[FormField]:
    yield FormField("name", ("metadata", "name"), _show_text, _parse_text)
    yield FormField("owner", ("metadata", "owner"), _show_text, _parse_text)
    yield FormField("labels", ("metadata", "labels"), _show_labels, _parse_labels)


def _target_fields(document: Mapping[str, Any]) -> Iterator[FormField]:
    for row in range(_count_pools(document)):
        for name in POOL_FIELDS:
            path = ("spec", "pools", row, name)
            parse = _parse_number if name == "count" else _parse_text
            yield FormField(f"pool-{row}-{name}", path, _show_text, parse)
    policy = ("spec", "policy")
    yield FormField("mode", (*policy, "mode"), _show_text, _parse_text)
    yield FormField("requireEntry", (*policy, "requireEntry"), _show_flag, _parse_flag)
    yield FormField("onUnknown", (*policy, "onUnknown"), _show_text, _parse_text)
    yield FormField("canary", (*policy, "canary", "require"), _show_flag, _parse_flag)
    yield FormField("suites", (*policy, "canary", "suites"), _show_words, _parse_words)


def _entry_fields() -> Iterator[FormField]:
    yield FormField("targets", ("spec", "targets"), _show_words, _parse_words)
    yield FormField("components", ("spec", "components"), _show_components, _parse_constraints)
    yield FormField("status", ("spec", "status"), _show_text, _parse_text)
    yield FormField("gpus", ("spec", "gpus"), _show_words, _parse_gpus)
    yield FormField("why", ("spec", "reason"), _show_text, _parse_text)
    yield FormField("override", ("spec", "evidenceOverride"), _show_text, _parse_text)


def _waiver_fields() -> Iterator[FormField]:
    yield FormField("name", ("metadata", "name"), _show_text, _parse_text)
    yield FormField("rules", ("spec", "rules"), _show_words, _parse_rules)
    yield FormField("targets", ("spec", "targets"), _show_words, _parse_words)
    match = ("spec", "match")
    yield FormField("image", (*match, "image"), _show_text, _parse_text)
    yield FormField("components", (*match, "components"), _show_components, _parse_constraints)
    yield FormField("everything", (*match, "everything"), _show_flag, _parse_flag)
    yield FormField("owner", ("spec", "owner"), _show_text, _parse_text)
    yield FormField("expires", ("spec", "expires"), _show_text, _parse_text)
    yield FormField("why", ("spec", "reason"), _show_text, _parse_text)


def _show_text(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) else ""


def _parse_text(text: str) -> str | None:
    return text or None


def _parse_number(text: str) -> int | str | None:
    """Return a number; other text is kept, and the check of the document explains it."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text or None


def _show_flag(value: Any) -> str:
    return _YES if value is True else ""


def _parse_flag(text: str) -> bool | None:
    return True if text else None


def _show_words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else ""


def _parse_words(text: str) -> list[str] | None:
    return split_words(text) or None


def _parse_rules(text: str) -> list[str] | None:
    return [rule.upper() for rule in split_words(text)] or None


def _parse_gpus(text: str) -> list[str] | None:
    """Return names of GPUs, which may hold spaces."""
    return [name for name in map(str.strip, re.split(r"[,\n]", text)) if name] or None


def _show_labels(value: Any) -> str:
    if not isinstance(value, Mapping):
        return ""
    return ", ".join(f"{key}={text}" for key, text in value.items())


def _parse_labels(text: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for word in split_words(text):
        key, separator, value = word.partition("=")
        if not separator or not key:
            hint = "key=value, separated by commas, like tier=prod, team=ml"
            raise BadInput(
                "is not a label of the form KEY=VALUE", field="labels", value=word, hint=hint
            )
        found[key] = value
    return found or None


def _show_components(value: Any) -> str:
    if not isinstance(value, Mapping):
        return ""
    return "\n".join(f"{name} {constraint}" for name, constraint in value.items())


def _parse_constraints(text: str) -> dict[str, str] | None:
    return parse_components(text) or None
