"""The matrix over REST."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from compatgate.cli.over_rest import sources as joined
from compatgate.cli.over_rest.rows import change, page_of, revision, stored
from compatgate.client.operations import Operations
from compatgate.errors import ManyProblems

if TYPE_CHECKING:
    from compatgate.client import Client
    from compatgate.documents.changes import Change
    from compatgate.documents.sources import Source
    from compatgate.documents.specs import Kind
    from compatgate.gate.imports import ImportResult
    from compatgate.gate.matrix import By
    from compatgate.store.rows import RevisionRow, Stored
    from compatgate.wire.matrix import Page
    from compatgate.wire.packages import PackagesReportBody


class RemoteMatrix:
    """The matrix; the author of a change is the caller's token."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, kind: Kind, name: str) -> Stored:
        """One document."""
        show: Any = getattr(Operations, f"show_{kind.lower()}")
        return stored(self._client.send(show.request(name).plain()))

    def delete(self, kind: Kind, name: str, by: By) -> int:
        """Delete a document; the revision that this made."""
        delete: Any = getattr(Operations, f"delete_{kind.lower()}")
        made: int = self._client.send(delete.request(name, reason=by.reason)).revision
        return made

    def list_targets(self, **filters: Any) -> Page[Stored]:
        """Targets by name."""
        return page_of(self._client, Operations.list_targets, stored, **filters)

    def list_entries(self, **filters: Any) -> Page[Stored]:
        """Entries by name."""
        return page_of(self._client, Operations.list_entries, stored, **filters)

    def list_waivers(self, **filters: Any) -> Page[Stored]:
        """Waivers by name."""
        return page_of(self._client, Operations.list_waivers, stored, **filters)

    def list_revisions(self, **filters: Any) -> Page[RevisionRow]:
        """Revisions, newest first."""
        return page_of(self._client, Operations.list_revisions, revision, **filters)

    def show_revision(self, number: int) -> RevisionRow:
        """A revision with all its changes."""
        return revision(self._client.send(Operations.show_revision.request(number).plain()))

    def revision_at(self, when: datetime) -> int:
        """The revision that held at a moment; 0 before the first."""
        return self._latest(until=when)

    def _latest(self, **filters: Any) -> int:
        rows = self._client.list_revisions(**filters).page(size=1).items
        return rows[0].number if rows else 0

    def export(self, *, revision: int | None = None) -> list[dict[str, Any]]:
        """Every document now, or as it was."""
        return self._client.export_matrix(revision=revision)

    def packages_report(
        self, *, target: str | None, since: datetime | None, decisions: int
    ) -> PackagesReportBody:
        """What ``packages: enforce`` would stop."""
        return self._client.packages_report(target=target, since=since, decisions=decisions)

    def diff(self, older: int, newer: int | None = None) -> list[Change]:
        """What changed between two revisions; None: up to now."""
        newer = self._latest() if newer is None else newer
        request = Operations.diff_revisions.request(newer, older=older)
        return [change(body) for body in self._client.send(request.plain())["changes"]]

    def diff_files(self, sources: Sequence[Source]) -> list[Change]:
        """What would turn the gate's matrix into that of some files; compared here."""
        import msgspec

        from compatgate.catalog import load_facts
        from compatgate.documents.changes import compare
        from compatgate.documents.read import read_documents
        from compatgate.documents.specs import TYPES

        known = self.export()
        names = [body["metadata"]["name"] for body in known if body["kind"] == "Target"]
        wanted = read_documents(sources, load_facts().gpus, names)
        return compare([msgspec.convert(body, TYPES[body["kind"]]) for body in known], wanted)

    def import_documents(
        self, sources: Sequence[Source], by: By, *, dry_run: bool = False
    ) -> ImportResult:
        """Create and change every document of some files, in one revision or not at all."""
        from compatgate.gate.imports import ImportResult

        together = joined.join(sources)
        request = Operations.import_matrix.request(
            together.text, reason=by.reason, dry_run=dry_run, file=together.file
        )
        try:
            found = self._client.send(request.plain())
        except ManyProblems as error:
            raise together.placed(error) from None
        changes = tuple(change(body) for body in found["changes"])
        return ImportResult(changes, found["unchanged"], found["revision"])
