"""Find what a run's candidate is compared with: an image, or the image of a blessed entry.

An entry has no image of its own. Its image is known from the newest passed run that measured what
the entry allows, else from the newest decision that the entry allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import select
from sqlalchemy.orm import Session

from compatgate.canary.run import BY_HISTORY
from compatgate.core.components import FRAMEWORKS
from compatgate.core.matrix import ANY_TARGET, Entry
from compatgate.core.request import Pool
from compatgate.core.stack import Stack, parse_stack
from compatgate.core.versions import parse_version
from compatgate.discovery.registry.image_spec import parse_reference
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.runs.evidence.evidence import EvidenceRecord
from compatgate.service.runs.queue.models import Run, RunRow, RunStep
from compatgate.service.runs.queue.schemas import AgainstBody

AUTO, NONE = "auto", "none"
_RECENT = timedelta(days=180)
_MAX_EVIDENCE = 500
_MAX_FORMER = 50
AllowedImages = Callable[[Session, str, str | None, str, datetime], Iterator[tuple[str, str]]]
"""Yields images that decisions of a target and pool allowed by an entry since a moment, newest
first, each with the id of its verdict."""


class Found(Struct, frozen=True):
    """An image, and where it is known from."""

    image: str
    reason: str


def find_against(
    session: Session,
    asked: str | None,
    run: RunRow,
    snapshot: Snapshot,
    now: datetime,
    allowed_images: AllowedImages,
) -> AgainstBody | None:
    """Return what a run is compared with; None if no comparison was asked for.

    Args:
        asked: ``auto``, ``history``, ``none``, an entry or an image; None: ``auto`` for an image
            under test on a target, else ``none``.
    """
    if asked is None:
        asked = AUTO if run.image and run.target else NONE
    if asked == NONE or (asked == BY_HISTORY and run.image is None):
        return None
    if asked == BY_HISTORY:
        found = _find_former(session, run) or find_against(
            session, AUTO, run, snapshot, now, allowed_images
        )
        return replace(found, asked=BY_HISTORY) if found else None
    if run.image is None:
        hint = "also name the image under test"
        raise BadInput(
            "only an image can be compared in pairs", field="against", value=asked, hint=hint
        )
    if asked == AUTO:
        pools = _pools(run, snapshot)
        entry, why = _find_replaced(run, snapshot, pools)
        if entry is None:
            return AgainstBody(AUTO, None, None, why)
        result = _find_image(session, run, entry, pools, now, allowed_images)
        if result is None:
            return AgainstBody(AUTO, None, entry.name, f"the entry {entry.name} has no known image")
        if result.image == run.image:
            why = f"the image is that of the entry {entry.name}: nothing to compare"
            return AgainstBody(AUTO, None, entry.name, why)
        return AgainstBody(AUTO, result.image, entry.name, result.reason)
    if asked in snapshot.entries:
        return _find_of_entry(session, run, snapshot.entries[asked], snapshot, now, allowed_images)
    if not set(asked) & set("/:@"):
        hint = suggest_name(asked, snapshot.entries) or "an image has a tag or digest"
        what = f"entry {asked!r} does not exist"
        raise NotFound(what, field="against", value=asked, hint=hint)
    try:
        parse_reference(asked)
    except BadInput as error:
        error.field = "against"
        raise
    return AgainstBody(asked, asked, None, "")


def _find_former(session: Session, run: RunRow) -> AgainstBody | None:
    """Return what the same image was last compared with on the target."""
    query = select(Run.id, Run.against).where(
        Run.image == run.image, Run.target == run.target, Run.against.is_not(None)
    )
    for run_id, body in session.execute(query.order_by(Run.seq.desc()).limit(_MAX_FORMER)):
        former = msgspec.convert(body, AgainstBody)
        if former.image and former.image != run.image:
            return replace(former, reason=f"run {run_id} was compared with it")
    return None


def _find_of_entry(
    session: Session,
    run: RunRow,
    entry: Entry,
    snapshot: Snapshot,
    now: datetime,
    allowed_images: AllowedImages,
) -> AgainstBody:
    if run.target and not {run.target, ANY_TARGET} & set(entry.targets):
        what = f"the entry {entry.name!r} is not for the target {run.target}"
        raise BadInput(what, field="against", value=entry.name, hint="name a reference image")
    pools = _pools(run, snapshot)
    if result := _find_image(session, run, entry, pools, now, allowed_images):
        return AgainstBody(entry.name, result.image, entry.name, result.reason)
    raise BadInput(
        f"the entry {entry.name!r} has no known image: none of its runs passed, and it allowed no "
        "image in a decision",
        field="against",
        value=entry.name,
        hint="name a reference image",
    )


def _pools(run: RunRow, snapshot: Snapshot) -> Sequence[Pool]:
    if run.target is None or run.target not in snapshot.targets:
        return ()
    pools = snapshot.targets[run.target].pools
    return [pool for pool in pools if run.pool in (None, pool.name)]


def _find_replaced(
    run: RunRow, snapshot: Snapshot, pools: Sequence[Pool]
) -> tuple[Entry | None, str]:
    """Return the blessed entry that the candidate would replace, or why there is none.

    It is the one that differs least from the stated stack; of several, the newest.
    """
    if run.target is None:
        return None, "a run without a target replaces no entry"
    entries = snapshot.matrix.entries
    blessed = [
        entry
        for entry in entries.of(run.target)
        if entry.status == "blessed" and any(entry.is_for(pool) for pool in pools)
    ]
    if not blessed:
        return None, f"no entry is blessed on {run.target}"
    if not run.stack:
        if len(blessed) == 1:
            return blessed[0], ""
        names = ", ".join(sorted(entry.name for entry in blessed)[:5])
        several = f"{len(blessed)} entries are blessed on {run.target} ({names})"
        return None, f"{several}: state the stack"
    stack = parse_stack(run.stack)
    frameworks = FRAMEWORKS.intersection(stack.components)
    alike = [entry for entry in blessed if FRAMEWORKS.intersection(entry.components) <= frameworks]
    if not alike:
        return None, f"no entry for the same framework is blessed on {run.target}"

    def distance(entry: Entry) -> tuple[int, int]:
        return min(len(entry.differences(stack, pool)) for pool in pools), -entry.revision

    return min(alike, key=distance), ""


def _find_image(
    session: Session,
    run: RunRow,
    entry: Entry,
    pools: Sequence[Pool],
    now: datetime,
    allowed_images: AllowedImages,
) -> Found | None:
    found = next(_images_of_evidence(session, entry, pools), None) or next(
        _images_of_runs(session, entry), None
    )
    if found or run.target is None:
        return found
    allowed = allowed_images(session, run.target, run.pool, entry.name, now - _RECENT)
    for image, verdict_id in allowed:
        return Found(image, f"decision {verdict_id} allowed it by the entry")
    return None


def _images_of_evidence(session: Session, entry: Entry, pools: Sequence[Pool]) -> Iterator[Found]:
    """Yield images of passed runs that measured what the entry allows, newest first."""
    for pool in pools:
        if pool.gpu is None:
            continue
        query = (
            select(Run.id, Run.image, EvidenceRecord.components)
            .join(EvidenceRecord, EvidenceRecord.run == Run.id)
            .where(EvidenceRecord.sku == pool.gpu.sku, EvidenceRecord.outcome == "passed")
            .where(Run.image.is_not(None))
            .order_by(EvidenceRecord.seq.desc())
            .limit(_MAX_EVIDENCE)
        )
        for run_id, image, measured in session.execute(query):
            components = {name: parse_version(name, version) for name, version in measured.items()}
            if entry.matches(Stack(components), pool):
                yield Found(_pin(session, run_id, image), f"run {run_id} passed with it")


def _images_of_runs(session: Session, entry: Entry) -> Iterator[Found]:
    """Yield images of passed runs that were about the entry, newest first."""
    query = select(Run.id, Run.image).where(
        Run.entry == entry.name, Run.state == "passed", Run.image.is_not(None)
    )
    for run_id, image in session.execute(query.order_by(Run.seq.desc()).limit(1)):
        yield Found(_pin(session, run_id, image), f"run {run_id} passed with it")


def _pin(session: Session, run_id: str, image: str | None) -> str:
    """Return the image by the digest that ran, if a registry can serve it; else as it was named."""
    assert image is not None  # noqa: S101 - the query asked for runs with an image
    named = parse_reference(image)
    query = select(RunStep.body).where(RunStep.run == run_id).order_by(RunStep.position.desc())
    for text in session.execute(query).scalars():
        ran = msgspec.json.decode(text).get("image") or ""
        if "@sha256:" in ran:
            pinned = parse_reference(ran)
            if (pinned.registry, pinned.repository) == (named.registry, named.repository):
                return ran
    return image
