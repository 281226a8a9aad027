"""Xid 144 to 150: the registers in the message decide, and the driver's branch how to read them.

Source: docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, "XID 144-150 Decode".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from compatgate.core.facts.xid import NvlinkCase, NvlinkUnit, Severity
from compatgate.core.versions import Version

CHANGED_IN = 575
"""Since R575 intrInfo has another layout."""

# "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 ...)"
_MESSAGE = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_/]+(?: [A-Z][a-z]+)?)\s+(?:Non-?)?[Ff]atal\b.*?"
    r"\((?P<info>0x[0-9a-fA-F]{1,8})\s+(?P<status>0x[0-9a-fA-F]{1,8})"
)


class Decoded(NamedTuple):
    """What the table says of a message."""

    severity: Severity
    action: str
    investigate: str


def decode(
    code: int, text: str, units: Iterable[NvlinkUnit], driver: Version | None
) -> Decoded | None:
    """The row of the decode table; None where the message does not fit exactly one."""
    match = _MESSAGE.search(text)
    if match is None:
        return None
    info, status = int(match["info"], 16), int(match["status"], 16)
    named = {name.strip().upper() for name in match["unit"].split("/")}
    rows = {
        _decoded(case, promoted)
        for unit in units
        if unit.xid == code and named & set(unit.names)
        for promoted in _fits(unit, info, driver)
        for case in unit.cases
        if case.reason == info >> 20 & 0x3F and case.status in (None, status)
    }
    return rows.pop() if len(rows) == 1 else None


def _fits(unit: NvlinkUnit, info: int, driver: Version | None) -> Iterator[bool]:
    """Whether the error is promoted, for each layout in which intrInfo names the unit."""
    before = driver is None or driver.major < CHANGED_IN
    since = driver is None or driver.major >= CHANGED_IN
    if before and info & 0x3FF == unit.v1:
        yield bool(info >> 10 & 1)
    if since and info & 0x7F == unit.v2:
        yield bool(info >> 7 & 1)


def _decoded(case: NvlinkCase, promoted: bool) -> Decoded:
    if promoted and case.promoted:
        return Decoded("fatal", case.promoted, case.investigate)
    if case.severity != "non-fatal":
        return Decoded("fatal", case.action, case.investigate)
    harmless = case.action == "IGNORE" and case.investigate == "IGNORE"
    return Decoded("info" if harmless else "warning", case.action, case.investigate)
