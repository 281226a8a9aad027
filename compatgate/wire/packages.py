"""What ``packages: enforce`` would stop on the targets that audit packages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from compatgate.core.target import Mode

DAYS = 30
"""Decisions of so many days are looked at, unless a moment is named."""
DECISIONS = 10_000
"""So many are looked at, the newest, unless a number is named."""


class OpenPackageBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A package that the target lets through with a warning, and that nothing judges.

    `decisions` were about a stack with it; `stopped` of these would have been stopped.
    """

    package: str
    version: str
    rules: Annotated[list[str], Meta(description="that cannot decide about it")]
    message: str
    decisions: int
    stopped: int
    first: datetime | None
    last: datetime | None
    verdicts: Annotated[list[str], Meta(description="some of the decisions' verdicts")]
    entries: Annotated[list[str], Meta(description="entries of the matrix that it is in")]
    todo: Annotated[list[str], Meta(description="ways to settle it; one is enough")]


class PackagesTargetBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One target that audits packages: what was looked at there, and what would be stopped."""

    target: str
    mode: Mode
    decisions: int
    stacks: Annotated[int, Meta(description="different ones among the decisions")]
    stopped: int
    entries: int
    stopped_entries: list[str]
    packages: Annotated[list[OpenPackageBody], Meta(description="those that stop most first")]
    open: Annotated[list[str], Meta(description="what could not be looked at, and why")]


class PackagesReportBody(Struct, frozen=True, forbid_unknown_fields=True):
    """`complete`: every decision since then was looked at, else only the newest."""

    since: datetime
    decisions: int
    complete: bool
    targets: list[PackagesTargetBody]
    matrix_revision: int
    facts: str
