"""How grave an error is and what NVIDIA says is to be done, by code and driver."""

from __future__ import annotations

from typing import NamedTuple

from compatgate.canary.health.nvlink import decode
from compatgate.canary.health.sightings import Sighting
from compatgate.core.facts.xid import RANK, Recovery, Severity, SXid, Xid, XidTable
from compatgate.core.versions import Version

UNKNOWN = "not in the table of known codes"
RECOVERY_CHANGED = 154
FATAL_SXID = "RESET_GPUS_OF_WORKLOAD"


class Rating(NamedTuple):
    """What the table makes of a sighting; ``action`` and ``investigate`` are guidance classes."""

    severity: Severity
    action: str | None
    meaning: str
    known: bool = True
    investigate: str | None = None
    mnemonic: str | None = None
    origin: tuple[str, ...] = ()
    source: str | None = None


def rate(seen: Sighting, table: XidTable, driver: Version | None = None) -> Rating:
    """Classify a sighting; a code that the table does not have is a warning that says so."""
    if seen.kind == "notice":
        notice = table.by_notice.get(seen.name)
        if notice is None:
            return Rating("warning", None, UNKNOWN, known=False)
        source = notice.source.url or notice.source.title
        return Rating(notice.severity, notice.action, notice.meaning, source=source)
    if seen.kind == "sxid":
        return _sxid(seen, table.by_sxid.get(seen.code or 0))
    found = table.by_xid.get(seen.code or 0)
    if found is None:
        return Rating("warning", None, UNKNOWN, known=False)
    return _xid(seen, found, table, driver)


def advice(action: str | None, table: XidTable) -> str:
    """``RESET_GPU: stop every process ...``; what is not known is said."""
    if action is None:
        return "NVIDIA's table names no action; look the code up in the current Xid catalog"
    known = table.advice.get(action)
    return f"{action}: {known}" if known else action


def _sxid(seen: Sighting, found: SXid | None) -> Rating:
    if found is None:
        severity: Severity = "fatal" if seen.says == "fatal" else "warning"
        action = FATAL_SXID if severity == "fatal" else None
        return Rating(severity, action, UNKNOWN, known=False)
    severity, action = found.severity, found.action
    if seen.says == "fatal" and severity != "fatal":
        severity, action = "fatal", FATAL_SXID
    meaning = found.meaning or "NVSwitch error"
    return Rating(severity, action, meaning, source=found.source.url or found.source.title)


def _xid(seen: Sighting, found: Xid, table: XidTable, driver: Version | None) -> Rating:
    rating = Rating(
        found.severity,
        found.action,
        _meaning(found),
        investigate=found.investigate,
        mnemonic=found.mnemonic,
        origin=found.origin,
        source=found.source.url or found.source.title,
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


def _meaning(found: Xid) -> str:
    if found.meaning:
        return found.meaning
    if found.legacy:
        return f"{found.legacy} (before Ampere; newer GPUs do not use the code)"
    return found.mnemonic or "not described"


def _recovery(seen: Sighting, rating: Rating, table: XidTable) -> Rating:
    """Xid 154 says what another Xid needs: what it changed to decides."""
    asked = seen.text.rpartition(" to ")[2]
    number, _, words = asked.partition("(")
    name = words.partition(")")[0].strip().lower()
    found = next((r for r in table.recoveries if name and name in r.names), None)
    if found is None and not name:
        found = _by_number(number, table)
    if found:
        meaning = f"the driver says what recovery is needed: {found.names[0]}"
        return rating._replace(
            severity=found.severity, action=found.action, meaning=meaning, investigate=None
        )
    if "recovery action changed" not in seen.text.lower():
        return rating
    # The driver asks for a recovery that the table cannot name: not as usable as before.
    return rating._replace(severity="fatal", meaning=f"{rating.meaning}; {UNKNOWN}: {asked}")


def _by_number(number: str, table: XidTable) -> Recovery | None:
    try:
        value = int(number.strip(), 0)
    except ValueError:
        return None
    return next((r for r in table.recoveries if r.value == value), None)


def _nvlink(seen: Sighting, rating: Rating, table: XidTable, driver: Version | None) -> Rating:
    if not any(unit.xid == seen.code for unit in table.nvlink):
        return rating
    said: Severity = "fatal" if seen.says == "fatal" else "warning"
    row = decode(seen.code or 0, seen.text, table.nvlink, driver)
    if row is None:
        severity = said if seen.says else rating.severity
        action = "RESET_GPU" if severity == "fatal" else rating.action
        note = "" if seen.says else "; the message does not say whether it is fatal"
        return rating._replace(severity=severity, action=action, meaning=f"{rating.meaning}{note}")
    severity = row.severity if not seen.says else max(row.severity, said, key=RANK.__getitem__)
    if seen.says == "non-fatal":
        severity = row.severity
    action = row.action
    if severity == "fatal" and row.severity != "fatal":
        action = "RESET_GPU"
    return rating._replace(severity=severity, action=action, investigate=row.investigate)
