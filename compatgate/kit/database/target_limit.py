"""Limit a query to the targets that a caller reaches."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, false, or_
from sqlalchemy.orm import Session

from compatgate.kit.principal import TargetPatterns


def in_limit(session: Session, column: Any, patterns: TargetPatterns) -> ColumnElement[bool]:
    """Return the condition that a column has the name of a target within a limit.

    Both databases compare in the name's case. Without patterns no row passes.
    """
    if session.get_bind().dialect.name == "sqlite":
        return or_(false(), *(column.op("GLOB")(pattern) for pattern in patterns))
    like = (pattern.replace("_", r"\_").replace("*", "%") for pattern in patterns)
    return or_(false(), *(column.like(pattern, escape="\\") for pattern in like))
