"""Show a document as the fields of a form, and write changed fields into the document.

Fields hold the common part of a document; its YAML holds all of it. A field that nobody changed
leaves the document alone, so that what only the YAML says is kept. How a field is written follows
from the type of its place in the spec.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct, inspect

from compatgate.documents.sources import FieldPath, format_path
from compatgate.documents.specs import TYPES, Kind
from compatgate.errors import BadInput, CompatgateError
from compatgate.service.matrix.documents.waivers import parse_components, split_words

MAX_POOLS = 40
"""Pools that have fields; the YAML shows all."""
POOL_FIELDS = ("name", "gpu", "driver", "count")
MAX_VALUES = 2000
"""Values in one field; a longer list belongs in the YAML."""
_ABOUT = {"name": "metadata.name", "owner": "metadata.owner", "labels": "metadata.labels"}
_PLACES: dict[Kind, dict[str, str]] = {
    "Target": _ABOUT | {
        "mode": "spec.policy.mode",
        "requireEntry": "spec.policy.requireEntry",
        "onUnknown": "spec.policy.onUnknown",
        "canary": "spec.policy.canary.require",
        "suites": "spec.policy.canary.suites",
    },
    "Entry": _ABOUT | {
        "targets": "spec.targets",
        "components": "spec.components",
        "status": "spec.status",
        "gpus": "spec.gpus",
        "why": "spec.reason",
        "override": "spec.evidenceOverride",
    },
    "Waiver": {
        "name": "metadata.name",
        "rules": "spec.rules",
        "targets": "spec.targets",
        "image": "spec.match.image",
        "components": "spec.match.components",
        "everything": "spec.match.everything",
        "owner": "spec.owner",
        "expires": "spec.expires",
        "why": "spec.reason",
    },
}  # fmt: skip
"""Places of the fields; pools of targets have rows of their own."""
_ROW = re.compile(rf"(pool-[0-9]{{1,2}})-(?:{'|'.join(POOL_FIELDS)})")
_MISSING = re.compile(r"(\w+) is missing")
Body = dict[str, Any]


class FieldFormat(Struct, frozen=True):
    """A way to write values as text; ``parse`` returns None for what the document then lacks."""

    show: Callable[[Any], str]
    parse: Callable[[str], Any]


def _show_text(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) else ""


def _parse_number(text: str) -> int | str | None:  # the check of the document explains other text
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text or None


def _show_words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else ""


def _parse_gpus(text: str) -> list[str] | None:  # names may hold spaces
    return [name for name in map(str.strip, re.split(r"[,\n]", text)) if name] or None


def _show_pairs(sign: str, end: str) -> Callable[[Any], str]:
    def show(value: Any) -> str:
        pairs = value.items() if isinstance(value, Mapping) else ()
        return end.join(f"{name}{sign}{text}" for name, text in pairs)

    return show


def _parse_labels(text: str) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    for word in split_words(text):
        key, separator, value = word.partition("=")
        if not separator or not key:
            what = "is not a label of the form KEY=VALUE"
            hint = "key=value, separated by commas, like tier=prod, team=ml"
            raise BadInput(what, field="labels", value=word, hint=hint)
        labels[key] = value
    return labels or None


_FLAG = FieldFormat(lambda value: "yes" if value is True else "", lambda text: bool(text) or None)
_BY_TYPE: dict[type[inspect.Type], FieldFormat] = {
    inspect.StrType: FieldFormat(_show_text, lambda text: text or None),
    inspect.LiteralType: FieldFormat(_show_text, lambda text: text or None),
    inspect.IntType: FieldFormat(_show_text, _parse_number),
    inspect.BoolType: _FLAG,
    inspect.VarTupleType: FieldFormat(_show_words, lambda text: split_words(text) or None),
    inspect.DictType: FieldFormat(_show_pairs("=", ", "), _parse_labels),
}
_BY_NAME = {
    "rules": FieldFormat(_show_words, lambda text: split_words(text.upper()) or None),
    "gpus": FieldFormat(_show_words, _parse_gpus),
    "components": FieldFormat(_show_pairs(" ", "\n"), lambda text: parse_components(text) or None),
}


class FormField(Struct, frozen=True):
    """A field of a form, and its place in the document."""

    name: str
    path: FieldPath
    format: FieldFormat

    def read(self, document: Mapping[str, Any]) -> str:
        """Return the text of the field; empty where the document has no value, or another type."""
        value: Any = document
        for step in self.path:
            if isinstance(step, int):
                value = value[step] if isinstance(value, list) and step < len(value) else None
            else:
                value = value.get(step) if isinstance(value, Mapping) else None
        return self.format.show(value)

    def write(self, document: Body, text: str) -> None:
        """Write the field into the document; refuse where the YAML has another type there."""
        value = self.format.parse(text)
        if isinstance(value, list | dict) and len(value) > MAX_VALUES:
            problem = f"has {len(value):,} values, and a field takes at most {MAX_VALUES:,}"
            raise BadInput(problem, field=self.name, hint="write a longer list in the YAML")
        place: Any = document
        for step, following in zip(self.path, self.path[1:], strict=False):
            if isinstance(step, int) and isinstance(place, list):
                place += [{} for _ in range(step + 1 - len(place))]
            elif not isinstance(place, dict):
                raise self._wrong_type()
            elif place.get(step) is None:
                place[step] = [] if isinstance(following, int) else {}
            place = place[step]
        if not isinstance(place, dict):
            raise self._wrong_type()
        if value is None:
            place.pop(self.path[-1], None)
        else:
            place[self.path[-1]] = value

    def _wrong_type(self) -> BadInput:
        hint = "correct the YAML, then change the field"
        what = "the YAML has another type here"
        return BadInput(what, field=format_path(self.path), hint=hint)


def list_fields(kind: Kind, document: Mapping[str, Any]) -> list[FormField]:
    """Return the fields of a document, with those of one more pool than a target has."""
    spec = document.get("spec")
    pools = spec.get("pools") if isinstance(spec, Mapping) else None
    rows = min(len(pools) if isinstance(pools, list) else 0, MAX_POOLS - 1) + 1
    return _fields_of(kind, rows if kind == "Target" else 0)


@lru_cache(maxsize=MAX_POOLS + 2)
def _fields_of(kind: Kind, rows: int) -> list[FormField]:
    places: dict[str, FieldPath] = {
        name: tuple(path.split(".")) for name, path in _PLACES[kind].items()
    }
    for row in range(rows):
        for name in POOL_FIELDS:
            places[f"pool-{row}-{name}"] = ("spec", "pools", row, name)
    fields = []
    for name, path in places.items():
        kinds: Any = inspect.type_info(TYPES[kind])
        for step in path:
            if isinstance(step, int):
                kinds = kinds.item_type
            else:
                kinds = next(one.type for one in kinds.fields if one.encode_name == step)
            if isinstance(kinds, inspect.UnionType):
                kinds = next(one for one in kinds.types if type(one) in _BY_TYPE)
            if isinstance(kinds, inspect.Metadata):
                kinds = kinds.type
        form = _BY_NAME.get(str(path[-1])) or _BY_TYPE[type(kinds)]
        fields.append(FormField(name, path, form))
    return fields


def show_fields(kind: Kind, document: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each field of a document."""
    return {field.name: field.read(document) for field in list_fields(kind, document)}


def find_wrong_fields(
    kind: Kind, typed: Mapping[str, str], error: CompatgateError
) -> dict[str, str]:
    """Return what is wrong with the fields of a form, by name; a row of a pool is ``pool-0``.

    Mistakes that belong to no field are left out.
    """
    rows = list_rows(typed)
    paths = {
        format_path(field.path): _ROW.sub(r"\1", field.name)
        for field in list_fields(kind, {"spec": {"pools": [{} for _ in rows]}})
    }
    paths |= {f"spec.pools[{row}]": f"pool-{row}" for row in rows}
    names = set(paths.values()) | {"reason"}
    wrong: dict[str, list[str]] = {}
    for one in getattr(error, "problems", (error,)):
        place = one.field or ""
        if missing := _MISSING.match(one.problem):
            place = f"{place}.{missing[1]}"
        name = place if place in names else ""
        while not name and place:  # the field of the part that it lies in
            name = paths.get(place, "")
            place = place[: max(place.rfind("."), place.rfind("["), 0)]
        if name:
            hint = f" ({one.hint})" if one.hint else ""
            wrong.setdefault(name, []).append(f"{one.problem}{hint}")
    return {name: "; ".join(dict.fromkeys(texts)) for name, texts in wrong.items()}


def list_holders(kind: Kind, typed: Mapping[str, str]) -> list[str]:
    """Return the names of the fields that have room for a mistake; a row of a pool is one."""
    pools: list[Body] = [{} for _ in list_rows(typed)[1:]]
    fields = list_fields(kind, {"spec": {"pools": pools}})
    names = (_ROW.sub(r"\1", f.name) for f in fields if f.name not in ("requireEntry", "canary"))
    return list(dict.fromkeys(names))


def list_rows(fields: Mapping[str, str]) -> list[int]:
    """Return the rows of pools in the fields of a form."""
    rows = {name.split("-")[1] for name in fields if _ROW.fullmatch(name)}
    return sorted(map(int, rows)) or [0]


def write_fields(
    kind: Kind, document: Body, shown: Mapping[str, Any], form: Mapping[str, str]
) -> bool:
    """Write the fields that somebody changed into a document; return whether there was one.

    ``shown`` is the document that the fields were filled from.
    """
    changed = False
    for field in list_fields(kind, shown):
        if field.name not in form and field.format is not _FLAG:
            continue  # a browser sends every field but boxes without a tick
        text = form.get(field.name, "").replace("\r\n", "\n").strip()
        if text != field.read(shown).strip():
            field.write(document, text)
            changed = True
    spec = document.get("spec")
    if changed and isinstance(spec, dict) and isinstance(spec.get("pools"), list):
        spec["pools"] = [pool for pool in spec["pools"] if pool != {}]
    return changed
