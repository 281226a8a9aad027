"""Check consistency within and between the fact files, beyond their schemas.

The checks in this module apply to every fact file: each record has a source and a unique name, and
each address is public.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from compatgate.catalog.schema import label, natural_key, of_items, of_property, read_schema
from compatgate.core.facts import Facts


class Problem(Struct, frozen=True, order=True):
    """A problem in the facts.

    Attributes:
        check: id of the check that found it, ``driver-order``.
        subject: record concerned, ``cuda_driver 12.4.1``.
        message: one sentence.
    """

    check: str
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.subject}: {self.message}"


class Context(Struct, frozen=True):
    """Input of the checks: the tables that rules read, and the parsed files."""

    facts: Facts
    documents: dict[str, dict[str, Any]]


Check = Callable[[Context], Iterator[Problem]]


def all_checks() -> tuple[Check, ...]:
    """Return every check, in the order in which problems are reported."""
    from compatgate.catalog.checks import drivers, frameworks, gpus

    return (
        *FILE_CHECKS,
        *drivers.CHECKS,
        *gpus.ARCHITECTURE_CHECKS,
        *frameworks.LIBRARY_CHECKS,
        *frameworks.FRAMEWORK_CHECKS,
        *frameworks.ISSUE_CHECKS,
        *gpus.XID_CHECKS,
        *gpus.PEAK_CHECKS,
    )


_URL = re.compile(r"https?://([^/\s\"')]+)")
_NAME = re.compile(r"(?:[a-z0-9-]+\.)+[a-z]{2,24}")
_PRIVATE = re.compile(r"(?:^|\.)(?:internal|local|localhost|corp|lan|intra|home|test|invalid)$")


def named_once(context: Context) -> Iterator[Problem]:
    """Check that the records of a list have different natural keys (Xid codes, toolkits, GPUs)."""
    for source, where, records, key in _lists(context):
        counted = Counter(label(record, key) for record in records)
        for name in (name for name, count in counted.items() if count > 1):
            yield Problem("named-once", f"{source} {where}[{name}]", "appears more than once")


def sourced(context: Context) -> Iterator[Problem]:
    """Check that every record has a source and a confidence; a wheel's record has a digest."""
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
    """Check that every address is public."""
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
    """Yield the lists whose records have a natural key: file, path, records, key."""
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


FILE_CHECKS: tuple[Check, ...] = (named_once, sourced, public_addresses)
