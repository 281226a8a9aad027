"""Define judged runs as evidence, as REST carries them: bindings, pools, warnings, promotions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from compatgate.core.binding import Binding, Comparison
from compatgate.kit.http.schemas import Filter, ListQuery, Since, Until


class ComparisonBody(Comparison, frozen=True, forbid_unknown_fields=True):
    """The result of a run in pairs, by its worst metric; unknown values are omitted."""


class BindingBody(Binding, frozen=True, forbid_unknown_fields=True):
    """The content that a judged run is bound to; unknown values are omitted."""

    compared: Annotated[
        ComparisonBody | None, Meta(description="omitted if the candidate was judged alone")
    ] = None


class EvidenceBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A judged run, bound to what was measured inside the container."""

    seq: int
    run: str
    suite: str
    sku: str
    driver: str
    components: dict[str, str]
    outcome: Literal["passed", "failed", "inconclusive"]
    finished: Annotated[int, Meta(description="seconds since the epoch")]
    development: Annotated[bool, Meta(description="true: the run was outside a container")]
    known_at: datetime
    content: Annotated[str | None, Meta(description="digest of the GPU content; null: unknown")]
    bound: Annotated[
        BindingBody | None, Meta(description="null: judged before bindings were recorded")
    ]


class DiscardBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The person who discarded a run, with time and reason."""

    by: str
    reason: str
    at: datetime


class PooledRunBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A judged run in a pool."""

    run: str
    outcome: Literal["passed", "failed", "inconclusive"]
    finished: Annotated[int, Meta(description="seconds since the epoch")]
    discarded: Annotated[DiscardBody | None, Meta(description="null: the run counts")]


class RunPoolBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The judged runs of one suite, GPU content, SKU and driver; one failure denies."""

    passed: Annotated[int, Meta(description="number of judged runs that passed")]
    judged: Annotated[int, Meta(description="number of judged runs, without discarded runs")]
    runs: Annotated[
        list[PooledRunBody], Meta(description="runs, newest first, including discarded runs")
    ]


class RunEvidenceBody(EvidenceBody, frozen=True, forbid_unknown_fields=True):
    """The evidence of one run, and the runs that it is pooled with."""

    discarded: Annotated[DiscardBody | None, Meta(description="null: the run counts")]
    pool: RunPoolBody
    changed: Annotated[
        str, Meta(description="how the row differs from the audit log, so that it does not count")
    ] = ""


class WarningBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A warning that a run contradicts an entry, until the failure no longer counts."""

    id: int
    entry: str
    run: str
    suite: str
    sku: str
    driver: str
    message: str
    opened_at: datetime
    closed_at: datetime | None
    closed_by: str | None


class EvidenceFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of evidence."""

    suite: Filter | None = None
    sku: Filter | None = None
    run: Annotated[Filter, Meta(description="id of the run")] | None = None
    outcome: Literal["passed", "failed"] | None = None
    content: Annotated[Filter, Meta(description="digest of the GPU content")] | None = None
    since: Since | None = None
    until: Until | None = None
