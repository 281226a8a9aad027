"""Decode the records of a fact file into structs of the core, by the types of their fields.

`read_value` reads what no YAML has: versions, constraints, capabilities, GPU code and sources. The
string beside a type, as in ``Annotated[Version, "driver"]``, names the component that a text is
of; ``$compiler`` means the component that the record's field of this name has. All else is as
msgspec converts it. A `Shape` says where a struct and its records differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct, ValidationError, convert
from msgspec.structs import fields

from compatgate.catalog.build import Misfit
from compatgate.catalog.build.values import Record, driver, gpu_code, pair, pairs, record_source
from compatgate.catalog.sources import Step
from compatgate.core.constraints import Constraint, parse_constraint
from compatgate.core.facts.nvidia import Pair, Source
from compatgate.core.gpu_code import Arch
from compatgate.core.node import NODE_COMPONENTS, parse_node_version
from compatgate.core.versions import Version, format_parts, parse_version
from compatgate.errors import BadInput, CompatgateError, locate_error, quote_error

S = TypeVar("S", bound=Struct)
Read = Callable[[Any, Record], Any]
"""Reads a value of a record; it returns a value of the core's types as it is."""


class Shape(NamedTuple):
    """The difference between a struct and its records."""

    names: Mapping[str, str] = {}  # the file's names of fields, where they are not the struct's
    # returns fields that are not in the record, or not in this form; a tuple, a struct or a dict of
    # structs is taken as it is
    make: Callable[[Record], Mapping[str, Any]] = lambda _: {}
    # fields whose rows are sorted, each with the attribute that they are sorted by
    order: Mapping[str, str] = {}


class _Field(NamedTuple):
    """A field of a struct."""

    name: str
    key: str  # its name in the file
    read: Read | None  # reads its value; None: msgspec alone does
    empty: Any  # stands for null; NODEFAULT: the field must be stated
    has_default: bool
    order: str


class Decoder:
    """Reads the records of some tables. Structs without a shape have that of their records."""

    def __init__(self, shapes: Mapping[type, Shape]) -> None:
        self._shapes = shapes
        self._plans: dict[tuple[type, str], list[_Field]] = {}

    def read(self, kind: type[S], record: Record, form: str = "") -> S:
        """Read a record.

        A null is as good as nothing for a field with a default; where null says nothing that the
        type can say, it stands for the empty text, list or mapping. Versions without a form of
        their own are of the component ``form``.
        """
        made = _made(self._shapes.get(kind, _SAME), record)
        row = {**record, **made}
        values = {}
        for field in self._plan(kind, form):
            value = row.get(field.name if field.name in made else field.key)
            if value is None and field.has_default:
                continue
            if value is None:
                if field.empty is NODEFAULT:
                    raise Misfit(BadInput("is missing"), field.key)
                value = field.empty
            elif field.read:
                value = _step(field.key, field.read, value, row)
            if field.order:
                key = attrgetter(field.order)
                if isinstance(value, dict):
                    value = dict(sorted(value.items(), key=lambda item: key(item[1])))
                else:
                    value = tuple(sorted(value, key=key))
            values[field.name] = value
        try:
            return convert(values, kind)
        except ValidationError as error:
            at, words = locate_error(error)
            raise Misfit(BadInput(f"has the wrong form: {words}"), at) from None

    def _plan(self, kind: type, form: str) -> list[_Field]:
        if (kind, form) not in self._plans:
            shape, hints = self._shapes.get(kind, _SAME), get_type_hints(kind, include_extras=True)
            self._plans[kind, form] = [
                _Field(
                    one.name,
                    shape.names.get(one.name, one.name),
                    self._reader(hints[one.name], form),
                    _empty_of(hints[one.name]),
                    not one.required,
                    shape.order.get(one.name, ""),
                )
                for one in fields(kind)
            ]
        return self._plans[kind, form]

    def _reader(self, hint: Any, form: str) -> Read | None:
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self._reader(args[0], args[1] if isinstance(args[1], str) else form)
        if origin in (Union, UnionType):
            others = [one for one in args if one is not NoneType]
            return self._reader(others[0], form) if len(others) == 1 else None
        if hint in _LEAVES:
            return lambda value, row: read_value(hint, value, row, form)
        if isinstance(hint, type) and issubclass(hint, Struct):
            if hint not in self._shapes and not any(one.read for one in self._plan(hint, form)):
                return None
            return lambda value, row: value if type(value) is hint else self.read(hint, value, form)
        if origin is tuple and args[-1] is Ellipsis:
            if args[0] in (Pair, Arch):
                return lambda value, row: read_value(hint, value, row, form)
            if item := self._reader(args[0], form):
                return partial(_read_rows, item)
        if origin is dict and (item := self._reader(args[1], form or "$key")):
            return partial(_read_mapping, item, args)
        return None


_SAME = Shape()
_LEAVES = (Version, Constraint, Source, Pair)
_UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)


def read_value(kind: Any, value: Any, row: Record, form: str) -> Any:
    """Read a value of a type that YAML does not have.

    Args:
        kind: of a leaf, or of a tuple of them.
        value: text, or what stands for it in the file.
        form: names the component that a version or constraint is of.
    """
    if isinstance(value, (tuple, Struct)):
        return value
    if kind is Source:
        return record_source(row)
    if kind is Constraint:
        return parse_constraint(row[form[1:]] if form.startswith("$") else form, str(value))
    if kind is Version:
        return _read_version(str(value), row, form) if value != "" else None
    if kind == Pair:
        return pair(value)
    return pairs(value) if get_args(kind)[0] == Pair else gpu_code(value)


def _read_version(text: str, row: Record, form: str) -> Version:
    component = row[form[1:]] if form.startswith("$") else form
    if component == "driver":
        return driver(text)
    if component == "node" or component in NODE_COMPONENTS:
        return parse_node_version(text)
    return parse_version(component, text)


def _read_rows(read: Read, value: Any, row: Record) -> tuple[Any, ...]:
    """Read a list; a tuple is made already."""
    if isinstance(value, tuple):
        return value
    return tuple(_step((at, one), read, one, row) for at, one in enumerate(value))


def _read_mapping(read: Read, types: tuple[Any, ...], value: Any, row: Record) -> dict[Any, Any]:
    """Read a mapping, or a list of records by their first field; nulls are left out.

    Constraints of a mapping are of the component that their key names.
    """
    if isinstance(value, Mapping):
        named = ((types[0](key), one) for key, one in value.items())
        optional = NoneType in get_args(types[1])
        return {
            key: one if one is None else _step(str(key), read, one, {**row, "key": key})
            for key, one in named
            if optional or one is not None
        }
    rows = _read_rows(read, value, row)
    first = attrgetter(rows[0].__struct_fields__[0]) if rows else None
    return {_key_of(first(one)): one for one in rows} if first else {}


def _key_of(value: Any) -> Any:
    return format_parts(value) if isinstance(value, tuple) else value


def _step(step: Step, read: Read, value: Any, row: Record) -> Any:
    """Read a value, and name the step to it where it does not fit."""
    try:
        return read(value, row)
    except Misfit as misfit:
        misfit.path.insert(0, step)
        raise
    except CompatgateError as error:
        raise Misfit(error, step) from error
    except _UNREADABLE as error:
        problem = f"cannot be read: {quote_error(error)}"
        raise Misfit(BadInput(problem, value=value), step) from error


def _made(shape: Shape, record: Record) -> Record:
    try:
        return shape.make(record)
    except CompatgateError as error:
        raise Misfit(error, *filter(None, [error.field])) from error
    except KeyError as error:
        raise Misfit(BadInput("is missing"), str(error.args[0])) from error
    except _UNREADABLE as error:
        raise Misfit(BadInput(f"cannot be read: {quote_error(error)}")) from error


def _empty_of(hint: Any) -> Any:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if NoneType in get_args(hint):
        return None
    origin: Any = get_origin(hint) or hint
    return {tuple: (), dict: {}, str: ""}.get(origin, NODEFAULT)
