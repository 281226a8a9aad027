"""Every record is sourced and named once, and every address is public."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from compatgate.catalog.checks import Check, Context, Problem
from compatgate.catalog.schema import label, natural_key, of_items, of_property, read_schema

_URL = re.compile(r"https?://([^/\s\"')]+)")
_NAME = re.compile(r"(?:[a-z0-9-]+\.)+[a-z]{2,24}")
_PRIVATE = re.compile(r"(?:^|\.)(?:internal|local|localhost|corp|lan|intra|home|test|invalid)$")


def named_once(context: Context) -> Iterator[Problem]:
    """No two records of a list have the same natural key (Xid codes, toolkits, GPUs...)."""
    for source, where, records, key in _lists(context):
        counted = Counter(label(record, key) for record in records)
        for name in (name for name, count in counted.items() if count > 1):
            yield Problem("named-once", f"{source} {where}[{name}]", "stands there more than once")


def sourced(context: Context) -> Iterator[Problem]:
    """Every record says where it comes from, and how sure that is; a digest proves a wheel's."""
    for source, where, records, key in _lists(context):
        if "." in where:
            continue
        for record in records:
            if "sha256" in record:
                continue
            for ending in ("source", "confidence"):
                if not any(k.endswith(ending) and v for k, v in record.items()):
                    subject = f"{source} {where}[{label(record, key)}]"
                    yield Problem("sourced", subject, f"no {ending}")


def public_addresses(context: Context) -> Iterator[Problem]:
    """Every address can be opened by everybody."""
    for source, document in context.documents.items():
        for text in _texts(document):
            for host in _URL.findall(text):
                if not _NAME.fullmatch(host.lower()) or _PRIVATE.search(host.lower()):
                    yield Problem("public-addresses", source, f"{host} is not a public host")


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for value in node.values():
            yield from _texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value)
    elif isinstance(node, str):
        yield node


def _lists(context: Context) -> Iterator[tuple[str, str, list[Any], tuple[str, ...]]]:
    """Every list whose records have a natural key: file, path, records, key."""
    for source, document in context.documents.items():
        yield from _walk(source, "", document, read_schema(source))


def _walk(
    source: str, where: str, node: Any, schema: dict[str, Any]
) -> Iterator[tuple[str, str, list[Any], tuple[str, ...]]]:
    if isinstance(node, dict):
        for name, value in node.items():
            path = f"{where}.{name}" if where else str(name)
            yield from _walk(source, path, value, of_property(schema, str(name)))
    elif isinstance(node, list):
        if key := natural_key(schema):
            yield source, where, node, key
        for record in node:
            yield from _walk(source, f"{where}[]", record, of_items(schema))


CHECKS: tuple[Check, ...] = (named_once, sourced, public_addresses)
