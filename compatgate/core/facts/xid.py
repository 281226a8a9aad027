"""Hold GPU errors of the kernel log (Xid, SXid and others): severity, and what to do."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from msgspec import Struct

from compatgate.core.constraints import Constraint
from compatgate.core.facts.nvidia import Source

Severity = Literal["fatal", "warning", "info"]
"""``fatal``: do not use the GPU before the action is done; ``warning``: the application was ended,
or the effect is not known; ``info``: no action is needed."""

SEVERITY_RANK: dict[Severity, int] = {"info": 0, "warning": 1, "fatal": 2}


class DriverVariant(Struct, frozen=True):
    """The fields of a code that differ on some drivers; None: as on all drivers."""

    driver: Annotated[Constraint, "driver"]
    severity: Severity | None = None
    action: str | None = None
    investigate: str | None = None
    meaning: str | None = None


class Xid(Struct, frozen=True):
    """A code of the GPU's driver."""

    code: int
    mnemonic: str | None
    meaning: str | None
    unused: bool  # the current catalog calls the code unused (Ampere and newer)
    severity: Severity
    # action, investigate: NVIDIA's immediate and investigatory action, by guidance class; None: the
    # catalog names none
    action: str | None
    investigate: str | None
    source: Source
    guidance: str | None = None  # what NVIDIA says beyond its action
    legacy: str | None = None  # what the code meant before Ampere
    origin: tuple[str, ...] = ()  # possible causes, most likely first; derived
    accompanies: int | None = None
    on_driver: tuple[DriverVariant, ...] = ()


class SXid(Struct, frozen=True):
    """A code of the NVSwitch's driver."""

    code: int
    meaning: str | None
    kind: str  # ``non-fatal``, ``fatal``, ``always-fatal`` (to the entire fabric) or ``notable``
    severity: Severity
    action: str
    source: Source


class Notice(Struct, frozen=True):
    """A message that is no Xid: ``rm-init-failed``, ``aer-fatal``."""

    name: str
    meaning: str
    severity: Severity
    action: str
    source: Source


class Recovery(Struct, frozen=True):
    """A recovery action of Xid 154; ``names`` are the words in its message, in lower case."""

    value: int
    names: tuple[str, ...]
    severity: Severity
    action: str


class NvlinkCase(Struct, frozen=True):
    """A row of NVIDIA's decode table."""

    reason: int  # bits 25 to 20 of intrInfo
    status: int | None  # errorStatus; None: any
    severity: str  # as the table says: ``fatal``, ``link-fatal``, ``non-fatal``
    action: str
    investigate: str
    promoted: str | None = None  # the action where intrInfo marks the error as promoted to fatal


class NvlinkUnit(Struct, frozen=True):
    """A sub-component that Xid 144 to 150 name."""

    xid: int
    names: tuple[str, ...]  # as messages spell it, in upper case
    v1: int  # bits 9 to 0 of intrInfo, before R575
    v2: int  # bits 6 to 0 of intrInfo, since R575
    cases: tuple[NvlinkCase, ...]


RmaMeasure = Literal["remap_failed", "sram_threshold_exceeded", "retired_pages_total"]


class RmaRule(Struct, frozen=True):
    """The condition for a replacement of a GPU by NVIDIA."""

    id: str
    measure: RmaMeasure  # what is read from the GPU
    xids: tuple[int, ...]  # codes that lead to the question
    applies: str  # GPUs that have the measure
    threshold: str
    check: str  # command that shows the measure
    source: Source
    limit: int | None = None  # least number that meets the threshold; None: the measure is a flag


class XidTable(Struct, frozen=True, dict=True):
    """Table ``xid``."""

    xids: tuple[Xid, ...]
    sxids: tuple[SXid, ...]
    notices: tuple[Notice, ...]
    recoveries: tuple[Recovery, ...]
    nvlink: tuple[NvlinkUnit, ...]
    advice: dict[str, str]  # the actions by guidance class
    rma: tuple[RmaRule, ...] = ()

    @cached_property
    def by_xid(self) -> dict[int, Xid]:
        """Return Xids by code."""
        return {xid.code: xid for xid in self.xids}

    @cached_property
    def by_sxid(self) -> dict[int, SXid]:
        """Return SXids by code."""
        return {sxid.code: sxid for sxid in self.sxids}

    @cached_property
    def by_notice(self) -> dict[str, Notice]:
        """Return other messages by name."""
        return {notice.name: notice for notice in self.notices}
