"""Find what a run's candidate is compared with: an image, or the image of a blessed entry.

An entry has no image of its own. Its image is known from the newest passed run that measured what
the entry allows, else from the newest decision that the entry allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace
from sqlalchemy import select
from sqlalchemy.orm import Session

from compatgate.canary.run import BY_HISTORY
from compatgate.core.components import FRAMEWORKS
from compatgate.core.matrix import ANY_TARGET, Entry
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


class ReferenceFinder:
    """Finds what one run is compared with."""

    def __init__(
        self,
        session: Session,
        run: RunRow,
        snapshot: Snapshot,
        now: datetime,
        allowed_images: AllowedImages,
    ) -> None:
        self._session, self._run, self._snapshot = session, run, snapshot
        self._now, self._allowed_images = now, allowed_images
        target = snapshot.targets.get(run.target or "")
        self._pools = [p for p in (target.pools if target else ()) if run.pool in (None, p.name)]

    def find(self, asked: str | None) -> AgainstBody | None:
        """Return what the run is compared with; None if no comparison was asked for.

        That is ``auto``, ``history``, ``none``, an entry or an image; None: ``auto`` for an image
        under test on a target, else ``none``.
        """
        run, entries = self._run, self._snapshot.entries
        if asked is None:
            asked = AUTO if run.image and run.target else NONE
        if asked == NONE or (asked == BY_HISTORY and run.image is None):
            return None
        if asked == BY_HISTORY:
            found = self._find_former() or self.find(AUTO)
            return replace(found, asked=BY_HISTORY) if found else None
        if run.image is None:
            what, hint = "only an image can be compared in pairs", "also name the image under test"
            raise BadInput(what, field="against", value=asked, hint=hint)
        if asked == AUTO:
            return self._find_replaced()
        if asked in entries:
            return self._find_of_entry(entries[asked])
        if not set(asked) & set("/:@"):
            hint = suggest_name(asked, entries) or "an image has a tag or digest"
            what = f"entry {asked!r} does not exist"
            raise NotFound(what, field="against", value=asked, hint=hint)
        try:
            parse_reference(asked)
        except BadInput as error:
            error.field = "against"
            raise
        return AgainstBody(asked, asked, None, "")

    def _find_former(self) -> AgainstBody | None:
        """Return what the same image was last compared with on the target."""
        image = self._run.image
        query = select(Run.id, Run.against).where(
            Run.image == image, Run.target == self._run.target, Run.against.is_not(None)
        )
        latest = query.order_by(Run.seq.desc()).limit(_MAX_FORMER)
        for run_id, body in self._session.execute(latest):
            former = msgspec.convert(body, AgainstBody)
            if former.image and former.image != image:
                return replace(former, reason=f"run {run_id} was compared with it")
        return None

    def _find_of_entry(self, entry: Entry) -> AgainstBody:
        run = self._run
        if run.target and not {run.target, ANY_TARGET} & set(entry.targets):
            what = f"the entry {entry.name!r} is not for the target {run.target}"
            raise BadInput(what, field="against", value=entry.name, hint="name a reference image")
        for image, reason in self._list_images(entry):
            return AgainstBody(entry.name, image, entry.name, reason)
        raise BadInput(
            f"the entry {entry.name!r} has no known image: none of its runs passed, and it allowed"
            " no image in a decision",
            field="against",
            value=entry.name,
            hint="name a reference image",
        )

    def _find_replaced(self) -> AgainstBody:
        """Return the image of the blessed entry that the candidate would replace, or why none."""
        entry, why = self._choose_replaced()
        if entry is None:
            return AgainstBody(AUTO, None, None, why)
        for image, reason in self._list_images(entry):
            if image != self._run.image:
                return AgainstBody(AUTO, image, entry.name, reason)
            why = f"the image is that of the entry {entry.name}: nothing to compare"
            return AgainstBody(AUTO, None, entry.name, why)
        return AgainstBody(AUTO, None, entry.name, f"the entry {entry.name} has no known image")

    def _choose_replaced(self) -> tuple[Entry | None, str]:
        """Return the entry that differs least from the stated stack, the newest of several."""
        target, pools = self._run.target, self._pools
        if target is None:
            return None, "a run without a target replaces no entry"
        blessed = [
            entry
            for entry in self._snapshot.matrix.entries.of(target)
            if entry.status == "blessed" and any(entry.is_for(pool) for pool in pools)
        ]
        if not blessed:
            return None, f"no entry is blessed on {target}"
        if not self._run.stack:
            if len(blessed) == 1:
                return blessed[0], ""
            names = ", ".join(sorted(entry.name for entry in blessed)[:5])
            several = f"{len(blessed)} entries are blessed on {target} ({names})"
            return None, f"{several}: state the stack"
        stack = parse_stack(self._run.stack)
        frameworks = FRAMEWORKS.intersection(stack.components)
        alike = [e for e in blessed if FRAMEWORKS.intersection(e.components) <= frameworks]
        if not alike:
            return None, f"no entry for the same framework is blessed on {target}"

        def distance(entry: Entry) -> tuple[int, int]:
            return min(len(entry.differences(stack, pool)) for pool in pools), -entry.revision

        return min(alike, key=distance), ""

    def _list_images(self, entry: Entry) -> Iterator[tuple[str, str]]:
        """Yield the images of an entry, each with where it is known from; the best first.

        These are of passed runs that measured what the entry allows, of those about the entry, and
        of decisions that it allowed.
        """
        for pool in self._pools:
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
            for run_id, image, measured in self._session.execute(query):
                components = {name: parse_version(name, text) for name, text in measured.items()}
                if image and entry.matches(Stack(components), pool):
                    yield self._pin(run_id, image), f"run {run_id} passed with it"
        about = select(Run.id, Run.image).where(
            Run.entry == entry.name, Run.state == "passed", Run.image.is_not(None)
        )
        for run_id, image in self._session.execute(about.order_by(Run.seq.desc()).limit(1)):
            yield self._pin(run_id, image or ""), f"run {run_id} passed with it"
        if target := self._run.target:
            since, pool_name = self._now - _RECENT, self._run.pool
            allowed = self._allowed_images(self._session, target, pool_name, entry.name, since)
            for image, verdict_id in allowed:
                yield image, f"decision {verdict_id} allowed it by the entry"

    def _pin(self, run_id: str, image: str) -> str:
        """Return the image by the digest that ran if a registry can serve it, else as named."""
        named = parse_reference(image)
        query = select(RunStep.body).where(RunStep.run == run_id).order_by(RunStep.position.desc())
        for text in self._session.execute(query).scalars():
            ran = msgspec.json.decode(text).get("image") or ""
            if "@sha256:" in ran:
                pinned = parse_reference(ran)
                if (pinned.registry, pinned.repository) == (named.registry, named.repository):
                    return ran
        return image
