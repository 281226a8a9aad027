"""Xid codes: every action is explained, and the decode table can tell its rows apart."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.catalog.checks import Check, Context, Problem


def xid_actions(context: Context) -> Iterator[Problem]:
    """Every immediate action is a guidance class with advice."""
    table = context.facts.xid
    named = {f"xids[xid={x.code}]": x.action for x in table.xids}
    named |= {
        f"xids[xid={x.code}] {other.driver}": other.action
        for x in table.xids
        for other in x.on_driver
    }
    named |= {f"sxids[sxid={s.code}]": s.action for s in table.sxids}
    named |= {f"messages[message={n.name}]": n.action for n in table.notices}
    named |= {f"recovery_actions[value={r.value}]": r.action for r in table.recoveries}
    for unit in table.nvlink:
        for case in unit.cases:
            subject = f"nvlink5[xid={unit.xid},unit={'/'.join(unit.names)}] {case.reason}"
            named |= {subject: case.action, f"{subject} promoted": case.promoted}
    for subject, action in named.items():
        if action and action not in table.advice:
            yield Problem("xid-actions", f"xid {subject}", f"no advice for {action}")


def xid_units(context: Context) -> Iterator[Problem]:
    """A unit of the decode table belongs to a known code, and no two units since R575 are alike."""
    table = context.facts.xid
    seen: dict[tuple[int, int], str] = {}
    for unit in table.nvlink:
        subject = f"xid nvlink5[xid={unit.xid},unit={'/'.join(unit.names)}]"
        if unit.xid not in table.by_xid:
            yield Problem("xid-units", subject, "there is no such Xid")
        other = seen.setdefault((unit.xid, unit.v2), subject)
        if other != subject:
            yield Problem("xid-units", subject, f"has the bits of {other}")


CHECKS: tuple[Check, ...] = (xid_actions, xid_units)
