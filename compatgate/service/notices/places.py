"""Link the objects of incidents to their pages."""

from __future__ import annotations

from compatgate.core.incidents import Member, Subject
from compatgate.kit.http.links import link

_PATHS: dict[Subject, str] = {
    "target": "targets",
    "entry": "entries",
    "waiver": "waivers",
    "run": "runs",
    "baseline": "baselines",
    "verdict": "verdicts",
    "upgrade": "upgrades",
}


def member_link(member: Member) -> str:
    """Return the address of the page about a member."""
    if member.about == "drift":
        return link("drift", target=member.name)
    if member.about == "channel":
        return link("notices", channel=member.name)
    if member.about == "release":
        return link("facts")
    return link(_PATHS[member.about], member.name)
