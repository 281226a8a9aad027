"""The matrix as a whole, and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, structs

from compatgate.client.operation import Listing, Operation
from compatgate.client.request import JSON, LONG_S, YAML, Moment, Request, get, pages, post
from compatgate.documents.specs import Kind
from compatgate.wire.matrix import Changes, ImportBody, Page, RevisionBody, RevisionDetail
from compatgate.wire.packages import PackagesReportBody

_DOCUMENTS = Annotated[list[dict[str, Any]], Meta(min_length=1)]


@Operation
def import_matrix(
    documents: str | Sequence[Mapping[str, Any]],
    *,
    reason: str,
    dry_run: bool = False,
    file: str | None = None,
) -> Request[ImportBody]:
    """Import documents, as one revision or not at all.

    Args:
        documents: YAML text, or documents as plain data.
        reason: why.
        dry_run: say what would change, and change nothing.
        file: what errors call the text.
    """
    body = documents if isinstance(documents, str) else list(documents)
    request = post(
        "/matrix/import",
        ImportBody,
        body=body,
        reads=_DOCUMENTS,
        repeatable=dry_run,
        reason=reason,
        dry_run=dry_run,
        file=file,
    )
    media = YAML if isinstance(body, str) else JSON
    return structs.replace(request, media=media, patience=LONG_S)


@Operation
def export_matrix(*, revision: int | None = None) -> Request[list[dict[str, Any]]]:
    """Export the matrix, now or at an older revision: targets, entries, waivers.

    `compatgate.documents.write.to_yaml` makes a file of it.
    """
    return get("/matrix/export", list[dict[str, Any]], revision=revision, format="json")


@Operation
def packages_report(
    *, target: str | None = None, since: Moment | None = None, decisions: int | None = None
) -> Request[PackagesReportBody]:
    """Say what `packages: enforce` would stop on the targets that audit packages.

    Args:
        target: only this one.
        since: look at decisions made at or after; of the last 30 days, where it is left out.
        decisions: look at so many at most, the newest.
    """
    request = get(
        "/matrix/packages-report",
        PackagesReportBody,
        target=target,
        since=since,
        decisions=decisions,
    )
    return structs.replace(request, patience=LONG_S)


@Listing
def list_revisions(
    *,
    author: str | None = None,
    kind: Kind | None = None,
    name: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Request[Page[RevisionBody]]:
    """List revisions of the matrix, newest first.

    Args:
        author: who made them.
        kind: of a document that they changed.
        name: of a document that they changed.
        since: made at or after.
        until: made at or before.
    """
    return pages(
        "/revisions", RevisionBody, author=author, kind=kind, name=name, since=since, until=until
    )


@Operation
def show_revision(number: int) -> Request[RevisionDetail]:
    """Show a revision with what it changed."""
    return get("/revisions/{number}", RevisionDetail, number=number)


@Operation
def diff_revisions(number: int, *, older: int | None = None) -> Request[Changes]:
    """Compare a revision with an older one; with the one before, where none is named."""
    given: dict[str, Any] = {"number": number, "from": older}
    return get("/revisions/{number}/diff", Changes, **given)
