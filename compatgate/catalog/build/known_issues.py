"""Known issues, from ``known_issues.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.read import Record, of, pairs
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import KnownIssue, KnownIssues
from compatgate.errors import BadInput


def known_issues(document: Record) -> KnownIssues:
    """Combinations that break although every published rule holds."""
    return KnownIssues(tuple(_issue(record) for record in document["issues"]))


def _issue(record: Record) -> KnownIssue:
    return KnownIssue(
        id=record["id"],
        title=record["title"],
        components=_components(record),
        outcome=record["outcome"],
        message=record["message"],
        source=of(record),
        capabilities=pairs(record.get("capabilities")),
        cpus=tuple(record.get("cpus") or ()),
        wheels=record.get("wheels", False),
        advice=record.get("advice") or "",
        fixes=tuple({str(k): str(v) for k, v in fix.items()} for fix in record.get("fixes") or ()),
    )


def _components(record: Record) -> dict[str, str]:
    """Constraints, read once here so that a wrong one shows when it is written."""
    found = {str(name): str(text) for name, text in record["components"].items()}
    for name, text in found.items():
        try:
            parse_constraint(name, text)
        except BadInput as error:
            raise error.at(f"issues[id={record['id']}].components") from error
    return found
