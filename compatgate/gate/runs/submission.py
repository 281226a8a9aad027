"""From what a user asks for to runs: one for each SKU and driver of a target."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from compatgate.canary.workloads import Library
from compatgate.canary.workloads.own_image import brings_image
from compatgate.core.stack import parse_stack
from compatgate.discovery.image.reference import parse_reference
from compatgate.documents.names import did_you_mean
from compatgate.errors import BadInput, NotFound
from compatgate.gate.runs.able import checked
from compatgate.gate.runs.places import Place, places
from compatgate.gate.snapshot import Snapshot
from compatgate.store.run_rows import HostRow, RunRow

PRIORITIES = 1000
MAX_ATTEMPTS = 3
_LONGEST_STACK = 64


class Submission(Struct, frozen=True, forbid_unknown_fields=True):
    """What a user asks for.

    Attributes:
        target: to run for; may be left out where a host is named.
        pool: of the target; None: each SKU and driver that it has.
        stack: under test, in the form of a gate request.
        image: under test.
        entry: of the matrix, that the runs are about.
        host: to run on; None: any that fits.
        priority: higher goes first; 0 is ordinary.
    """

    suite: str
    target: str | None = None
    pool: str | None = None
    stack: dict[str, Any] | None = None
    image: str | None = None
    entry: str | None = None
    host: str | None = None
    priority: int = 0


class Needs(Struct, frozen=True):
    """What a suite needs, of one run.

    Attributes:
        gpus: on all its nodes.
        imageless: workloads that bring no image of their own.
    """

    gpus: int
    nodes: int
    imageless: tuple[str, ...]


def plan(
    asked: Submission,
    catalogue: Library,
    snapshot: Snapshot,
    hosts: Sequence[HostRow],
    *,
    by: str,
    at: datetime,
    purpose: str = "request",
) -> list[RunRow]:
    """The runs that a submission means, each of which some host could run.

    Raises:
        BadInput: names the field; or no host that is registered could ever run it.
        NotFound: there is no such suite, target, pool, entry or host.
    """
    needs = _needs(asked.suite, catalogue)
    stack = _stack(asked)
    _check(asked, snapshot)
    where = asked.target, asked.pool, asked.host
    found = places(*where, snapshot, hosts, needs_gpu=bool(needs.gpus))
    made = [_queued(asked, needs, stack, place, by, at, purpose) for place in found]
    return [checked(run, hosts, needs.imageless) for run in made]


def _needs(suite: str, catalogue: Library) -> Needs:
    imageless = [w.name for w in catalogue.of_suite(suite) if not brings_image(w)]
    return Needs(catalogue.gpus_of(suite), catalogue.nodes_of(suite), tuple(imageless))


def _stack(asked: Submission) -> dict[str, Any]:
    if asked.image is not None:
        try:
            parse_reference(asked.image)
        except BadInput as error:
            error.field = "image"
            raise
    if asked.stack is None:
        return {}
    if len(asked.stack) > _LONGEST_STACK:
        raise BadInput("states too much", field="stack", hint=f"at most {_LONGEST_STACK} parts")
    try:
        return parse_stack(asked.stack, image=asked.image).to_json()
    except BadInput as error:
        raise error.at("stack") from None


def _check(asked: Submission, snapshot: Snapshot) -> None:
    if not -PRIORITIES <= asked.priority <= PRIORITIES:
        hint = f"from {-PRIORITIES} to {PRIORITIES}; 0 is ordinary"
        raise BadInput("out of range", field="priority", value=asked.priority, hint=hint)
    if asked.entry is not None and asked.entry not in snapshot.entries:
        hint = did_you_mean(asked.entry, snapshot.entries)
        what = f"there is no entry {asked.entry!r}"
        raise NotFound(what, field="entry", value=asked.entry, hint=hint)


def _queued(
    asked: Submission,
    needs: Needs,
    stack: dict[str, Any],
    place: Place,
    by: str,
    at: datetime,
    purpose: str,
) -> RunRow:
    """A run as it waits for its first attempt; the database numbers it."""
    return RunRow(
        seq=0,
        id=f"run_{secrets.token_hex(8)}",
        suite=asked.suite,
        state="queued",
        stack=stack,
        target=asked.target,
        pool=place.pool,
        entry=asked.entry,
        image=asked.image,
        gpu=place.gpu,
        driver=place.driver,
        gpus=max(1, needs.gpus),
        nodes=needs.nodes,
        host=asked.host,
        priority=asked.priority,
        purpose=purpose,
        attempts=0,
        max_attempts=MAX_ATTEMPTS,
        doing="",
        progress=None,
        reason="",
        asked_by=by,
        worker=None,
        on_host=None,
        not_before=None,
        lease_until=None,
        cancel_by=None,
        created_at=at,
        started_at=None,
        finished_at=None,
    )
