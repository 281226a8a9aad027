"""The part of an answer that this version knows: a newer gate may say more."""

from __future__ import annotations

from typing import Any

from msgspec import inspect


def known_part(kind: Any, value: Any) -> Any:
    """JSON without the members of objects that a type does not have.

    Args:
        kind: type of the answer.
        value: decoded JSON.
    """
    return _known(inspect.type_info(kind), value)


def _known(kind: inspect.Type, value: Any) -> Any:
    if isinstance(kind, inspect.Metadata):
        return _known(kind.type, value)
    if isinstance(kind, inspect.UnionType):
        fitting = [one for one in kind.types if _fits(one, value)]
        return _known(fitting[0], value) if len(fitting) == 1 else value
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        return {name: _known(fields[name], v) for name, v in value.items() if name in fields}
    if isinstance(kind, inspect.DictType) and isinstance(value, dict):
        return {name: _known(kind.value_type, v) for name, v in value.items()}
    if isinstance(kind, inspect.ListType | inspect.VarTupleType) and isinstance(value, list):
        return [_known(kind.item_type, item) for item in value]
    return value


def _fits(kind: inspect.Type, value: Any) -> bool:
    """Whether a member of a union may be meant."""
    if isinstance(kind, inspect.Metadata):
        return _fits(kind.type, value)
    if isinstance(value, dict):
        return isinstance(kind, inspect.StructType | inspect.DictType)
    return isinstance(value, list) and isinstance(kind, inspect.ListType | inspect.VarTupleType)
