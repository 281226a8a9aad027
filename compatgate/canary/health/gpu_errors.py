"""Recognize GPU and NVSwitch errors in kernel messages, and rate them by code and driver.

For Xid 144 to 150 the registers in the message decide, and the driver's branch says how to read
them. Source: docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, "XID 144-150 Decode".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import product
from typing import Literal, NamedTuple

from compatgate.core.facts.xid import NvlinkCase, NvlinkUnit, Severity, Xid, XidTable
from compatgate.core.versions import Version

Kind = Literal["xid", "sxid", "notice"]
FALLEN_OFF = 79
RM_INIT = "rm-init-failed"


class Sighting(NamedTuple):
    """An error as one line reports it: the code of an Xid or SXid, or the name of a notice.

    The device is without its function, ``0000:9b:00``; ``says`` is ``fatal`` or ``non-fatal``.
    """

    kind: Kind
    code: int | None
    device: str
    text: str
    name: str = ""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    pid: int | None = None
    process: str | None = None
    follows: bool = False
    says: str = ""


_PLACE = r"\(\s*(?P<place>[^()]{1,80}?)\s*\)"
_XID = re.compile(
    rf"\b(?P<kind>S?Xid)\s*{_PLACE}\s*:\s*(?P<code>\d{{1,6}})\b\s*[,:.]?\s*(?P<rest>.*)",
    re.IGNORECASE,
)
_MORE = re.compile(r"(?:Severity \d|Data \{|Data:)", re.IGNORECASE)
_INSTANCE = re.compile(r"\bGPU-I:(\d{1,4})\b")
_COMPUTE = re.compile(r"\bGPU-CI:(\d{1,4})\b")
_PID = re.compile(r"\bpid=(\d{1,10})\b")
_NAME = re.compile(r"\bname=([^,]{1,64})")
_SAYS = re.compile(r"\b(non-?)?fatal\b", re.IGNORECASE)
_ADDRESS = re.compile(
    r"(?:PCI:)?\s*(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?(?=$|[\s,])",
    re.IGNORECASE,
)
# Drivers before R300 print a bus of four digits and a device: "Xid (0003:00)".
_OLD_ADDRESS = re.compile(r"(?:PCI:)?00([0-9a-f]{2}):([0-9a-f]{2})(?=$|[\s,])", re.IGNORECASE)
_OFF_BUS = re.compile(
    r"GPU (?:at )?(?:PCI:)?(?P<place>[0-9a-f:.]{5,16}?):? .*fallen off the bus", re.IGNORECASE
)
_RM_INIT = re.compile(
    r"GPU (?P<place>[0-9a-f:.]{5,16}): (?P<what>RmInitAdapter failed|rm_init_adapter failed)",
    re.IGNORECASE,
)
_AER = re.compile(
    r"\bnvidia (?P<place>[0-9a-f:.]{7,16}): (?:AER: )?(?:.*)PCIe Bus Error: severity="
    r"(?P<severity>Corrected|Uncorrected \((?:Non-)?Fatal\))",
    re.IGNORECASE,
)
_AER_NAMES = {
    "corrected": "aer-corrected",
    "uncorrected (non-fatal)": "aer-nonfatal",
    "uncorrected (fatal)": "aer-fatal",
}


def parse_device(place: str) -> str | None:
    """Return a PCI address as ``0000:9b:00``; None if the text is not an address."""
    if match := _ADDRESS.match(place):
        domain = int(match[1] or "0", 16)
        return f"{domain:04x}:{match[2]}:{match[3]}".lower()
    if match := _OLD_ADDRESS.match(place):
        return f"0000:{match[1]}:{match[2]}".lower()
    return None


def parse_sighting(text: str) -> Sighting | None:
    """Return the GPU error in a message; None if there is none."""
    if match := _XID.search(text):
        return _parse_xid(match)
    if (match := _RM_INIT.search(text)) and (device := parse_device(match["place"])):
        follows = match["what"].startswith("rm_")
        return Sighting("notice", None, device, match[0], name=RM_INIT, follows=follows)
    if (match := _OFF_BUS.search(text)) and (device := parse_device(match["place"])):
        return Sighting("xid", FALLEN_OFF, device, match[0], follows=True)
    if (match := _AER.search(text)) and (device := parse_device(match["place"])):
        return Sighting("notice", None, device, text, name=_AER_NAMES[match["severity"].lower()])
    return None


def _parse_xid(match: re.Match[str]) -> Sighting | None:
    device = parse_device(match["place"])
    if device is None:
        return None
    rest = " ".join(match["rest"].split())
    code, stated = int(match["code"]), _SAYS.search(rest)
    says = "" if not stated else "non-fatal" if stated[1] else "fatal"
    if match["kind"].lower() == "sxid":
        return Sighting("sxid", code, device, rest, follows=bool(_MORE.match(rest)), says=says)
    gpu_instance, compute_instance, pid = (
        int(found[1]) if (found := pattern.search(text)) else None
        for pattern, text in ((_INSTANCE, match["place"]), (_COMPUTE, match["place"]), (_PID, rest))
    )
    process = _NAME.search(rest)
    return Sighting(
        "xid",
        code,
        device,
        rest,
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
        pid=pid,
        process=process[1].strip() if process and process[1] != "<unknown>" else None,
        says=says,
    )


UNKNOWN_CODE = "not in the table of known codes"
RECOVERY_CHANGED = 154
FATAL_SXID = "RESET_GPUS_OF_WORKLOAD"


class Rating(NamedTuple):
    """Rating of a sighting by the table; ``action`` and ``investigate`` are guidance classes."""

    severity: Severity
    action: str | None
    meaning: str
    known: bool = True
    investigate: str | None = None
    mnemonic: str | None = None
    origin: tuple[str, ...] = ()
    source: str | None = None
    guidance: str | None = None


def rate_sighting(seen: Sighting, table: XidTable, driver: Version | None = None) -> Rating:
    """Rate a sighting; a code that is not in the table gets a warning that says so."""
    if seen.kind == "notice":
        notice = table.by_notice.get(seen.name)
        if notice is None:
            return Rating("warning", None, UNKNOWN_CODE, known=False)
        source = notice.source.url or notice.source.title
        return Rating(notice.severity, notice.action, notice.meaning, source=source)
    if seen.kind == "sxid":
        known = table.by_sxid.get(seen.code or 0)
        severity: Severity = known.severity if known else "warning"
        action = known.action if known else None
        if seen.says == "fatal" and severity != "fatal":
            severity, action = "fatal", FATAL_SXID
        if known is None:
            return Rating(severity, action, UNKNOWN_CODE, known=False)
        source = known.source.url or known.source.title
        return Rating(severity, action, known.meaning or "NVSwitch error", source=source)
    found = table.by_xid.get(seen.code or 0)
    if found is None:
        return Rating("warning", None, UNKNOWN_CODE, known=False)
    return _rate_xid(seen, found, table, driver)


def describe_action(action: str | None, table: XidTable) -> str:
    """Return ``RESET_GPU: stop every process ...``, or say that the action is not known."""
    if action is None:
        return "NVIDIA's table names no action; look the code up in the current Xid catalog"
    known = table.advice.get(action)
    return f"{action}: {known}" if known else action


def describe_rma(code: int | None, table: XidTable) -> str | None:
    """Return when NVIDIA replaces a GPU with an Xid; None where it publishes no threshold."""
    rules = [rule for rule in table.rma if code in rule.xids]
    return "; ".join(f"{r.applies}: {r.threshold} ({r.check})" for r in rules) or None


def _rate_xid(seen: Sighting, found: Xid, table: XidTable, driver: Version | None) -> Rating:
    if found.meaning:
        meaning = found.meaning
    elif found.legacy:
        meaning = f"{found.legacy} (before Ampere; newer GPUs do not use the code)"
    else:
        meaning = found.mnemonic or "not described"
    rating = Rating(
        found.severity,
        found.action,
        meaning,
        investigate=found.investigate,
        mnemonic=found.mnemonic,
        origin=found.origin,
        source=found.source.url or found.source.title,
        guidance=found.guidance,
    )
    if found.action is None and found.accompanies in table.by_xid:
        other = table.by_xid[found.accompanies]
        rating = rating._replace(action=other.action, investigate=other.investigate)
    for case in found.on_driver:
        if driver is not None and case.driver.allows(driver):
            rating = rating._replace(
                severity=case.severity or rating.severity,
                action=case.action or rating.action,
                investigate=case.investigate or rating.investigate,
                meaning=case.meaning or rating.meaning,
            )
            break
    if found.code == RECOVERY_CHANGED:
        return _recovery(seen, rating, table)
    return _nvlink(seen, rating, table, driver)


def _recovery(seen: Sighting, rating: Rating, table: XidTable) -> Rating:
    """Rate Xid 154, which reports the recovery that another Xid needs: the new value decides."""
    asked = seen.text.rpartition(" to ")[2]
    number, _, words = asked.partition("(")
    name = words.partition(")")[0].strip().lower()
    found = next((r for r in table.recoveries if name and name in r.names), None)
    if found is None and not name:
        with suppress(ValueError):
            value = int(number.strip(), 0)
            found = next((r for r in table.recoveries if r.value == value), None)
    if found:
        meaning = f"the driver says what recovery is needed: {found.names[0]}"
        return rating._replace(
            severity=found.severity, action=found.action, meaning=meaning, investigate=None
        )
    if "recovery action changed" not in seen.text.lower():
        return rating
    # The table does not know the requested recovery, so the GPU is rated as not usable.
    return rating._replace(severity="fatal", meaning=f"{rating.meaning}; {UNKNOWN_CODE}: {asked}")


def _nvlink(seen: Sighting, rating: Rating, table: XidTable, driver: Version | None) -> Rating:
    if not any(unit.xid == seen.code for unit in table.nvlink):
        return rating
    row = _decode_nvlink(seen.code or 0, seen.text, table.nvlink, driver)
    if row is None:
        severity = rating.severity
        if seen.says:
            severity = "fatal" if seen.says == "fatal" else "warning"
        action = "RESET_GPU" if severity == "fatal" else rating.action
        note = "" if seen.says else "; the message does not say whether it is fatal"
        return rating._replace(severity=severity, action=action, meaning=f"{rating.meaning}{note}")
    severity, action, investigate = row
    if seen.says == "fatal" and severity != "fatal":
        severity, action = "fatal", "RESET_GPU"
    return rating._replace(severity=severity, action=action, investigate=investigate)


NEW_LAYOUT_BRANCH = 575
"""First driver branch with the new layout of intrInfo."""
# "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 ...)"
_MESSAGE = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_/]+(?: [A-Z][a-z]+)?)\s+(?:Non-?)?[Ff]atal\b.*?"
    r"\((?P<info>0x[0-9a-fA-F]{1,8})\s+(?P<status>0x[0-9a-fA-F]{1,8})"
)


def _decode_nvlink(
    code: int, text: str, units: Iterable[NvlinkUnit], driver: Version | None
) -> tuple[Severity, str, str] | None:
    """Return severity, action and investigation; None if not exactly one row of the table fits."""
    match = _MESSAGE.search(text)
    if match is None:
        return None
    info, status = int(match["info"], 16), int(match["status"], 16)
    named = {name.strip().upper() for name in match["unit"].split("/")}
    before = driver is None or driver.major < NEW_LAYOUT_BRANCH
    since = driver is None or driver.major >= NEW_LAYOUT_BRANCH
    rows = set()
    for unit in units:
        if unit.xid != code or not named & set(unit.names):
            continue
        # Whether the error is promoted, for each layout in which intrInfo names the unit.
        promotions = [bool(info >> 10 & 1)] if before and info & 0x3FF == unit.v1 else []
        promotions += [bool(info >> 7 & 1)] if since and info & 0x7F == unit.v2 else []
        for promoted, case in product(promotions, unit.cases):
            if case.reason == info >> 20 & 0x3F and case.status in (None, status):
                rows.add(_rate_case(case, promoted))
    return rows.pop() if len(rows) == 1 else None


def _rate_case(case: NvlinkCase, promoted: bool) -> tuple[Severity, str, str]:
    if promoted and case.promoted:
        return "fatal", case.promoted, case.investigate
    if case.severity != "non-fatal":
        return "fatal", case.action, case.investigate
    harmless = case.action == "IGNORE" and case.investigate == "IGNORE"
    return "info" if harmless else "warning", case.action, case.investigate
