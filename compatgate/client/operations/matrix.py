"""Import, export and change the matrix, its entries, targets and waivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any

from msgspec import Meta, structs

from compatgate.client.request import (
    JSON,
    LONG_S,
    YAML,
    Listing,
    Moment,
    Operation,
    Request,
    delete,
    document,
    get,
    members,
    pages,
    post,
    put,
)
from compatgate.core.compare.packages import PackagesReport
from compatgate.core.matrix import EntryStatus
from compatgate.documents.specs import Kind
from compatgate.kit.http.schemas import Page
from compatgate.service.comparison.schemas import DependentsBody, PlanBody, PlanRequest
from compatgate.service.matrix.schemas import (
    ApprovalBody,
    Changes,
    EntryBody,
    EntryChange,
    ImportBody,
    Made,
    PoolRowBody,
    RevisionBody,
    RevisionDetail,
    TargetBody,
    TargetChange,
    WaiverBody,
    WaiverChange,
)
from compatgate.service.proposals.schemas import ApproveRequest
from compatgate.service.reports.schemas import TargetReportBody

_DOCUMENTS = Annotated[list[dict[str, Any]], Meta(min_length=1)]


@Operation
def import_matrix(
    documents: str | Sequence[Mapping[str, Any]],
    *,
    reason: str,
    dry_run: bool = False,
    force: bool | None = None,
    file: str | None = None,
) -> Request[ImportBody]:
    """Import documents atomically, as one revision.

    Args:
        documents: YAML text, or documents as plain data.
        reason: reason of the change.
        dry_run: return the changes without making them.
        force: accept suites that a worker will bring later.
        file: name of the text in errors.
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
        force=force,
        file=file,
    )
    media = YAML if isinstance(body, str) else JSON
    return structs.replace(request, media=media, patience=LONG_S)


@Operation
def export_matrix(*, revision: int | None = None) -> Request[list[dict[str, Any]]]:
    """Export the matrix, now or at an older revision: targets, entries, waivers.

    `compatgate.documents.text.to_yaml` converts it to a file.
    """
    return get("/matrix/export", list[dict[str, Any]], revision=revision, format="json")


@Operation
def packages_report(
    *, target: str | None = None, since: Moment | None = None, decisions: int | None = None
) -> Request[PackagesReport]:
    """Show what `packages: enforce` would stop on the targets that audit packages.

    Args:
        target: only this target.
        since: decided at or after; None: within the last 30 days.
        decisions: maximum number of decisions, newest first.
    """
    request = get(
        "/matrix/packages-report",
        PackagesReport,
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
        author: author of the revision.
        kind: kind of a changed document.
        name: name of a changed document.
        since: made at or after.
        until: made at or before.
    """
    return pages(
        "/revisions", RevisionBody, author=author, kind=kind, name=name, since=since, until=until
    )


@Operation
def show_revision(number: int) -> Request[RevisionDetail]:
    """Show a revision with its changes."""
    return get("/revisions/{number}", RevisionDetail, number=number)


@Operation
def diff_revisions(number: int, *, older: int | None = None) -> Request[Changes]:
    """Compare a revision with an older one; None: the previous one."""
    given: dict[str, Any] = {"number": number, "from": older}
    return get("/revisions/{number}/diff", Changes, **given)


EntryDocument = EntryChange | Mapping[str, Any]


@Listing
def list_entries(
    *,
    target: str | None = None,
    status: EntryStatus | None = None,
    component: str | None = None,
    label: str | None = None,
    owner: str | None = None,
    search: str | None = None,
) -> Request[Page[EntryBody]]:
    """List entries by name.

    Args:
        target: target of the entry.
        status: status of the entry.
        component: component that the entry constrains.
        label: label, such as ``team=ml``.
        owner: owner of the entry.
        search: part of the name, in upper or lower case.
    """
    return pages(
        "/entries",
        EntryBody,
        target=target,
        status=status,
        component=component,
        label=label,
        owner=owner,
        search=search,
    )


@Operation
def create_entry(entry: EntryDocument, *, reason: str) -> Request[EntryBody]:
    """Create an entry, with a reason."""
    body = document(entry, reason)
    return post("/entries", EntryBody, body=body, reads=EntryChange)


@Operation
def show_entry(name: str) -> Request[EntryBody]:
    """Show an entry."""
    return get("/entries/{name}", EntryBody, name=name)


@Operation
def change_entry(
    name: str, entry: EntryDocument, *, reason: str, if_match: str | int | None = None
) -> Request[EntryBody]:
    """Replace an entry with a document.

    Args:
        name: name of the entry.
        entry: new document.
        reason: reason of the change.
        if_match: entity tag or revision that the entry must have.
    """
    body = document(entry, reason)
    return put(
        "/entries/{name}",
        EntryBody,
        body=body,
        reads=EntryChange,
        if_match=if_match,
        name=name,
    )


@Operation
def delete_entry(name: str, *, reason: str, if_match: str | int | None = None) -> Request[Made]:
    """Delete an entry; its history stays. Arguments as `change_entry`."""
    return delete("/entries/{name}", Made, if_match=if_match, name=name, reason=reason)


TargetDocument = TargetChange | Mapping[str, Any]


@Listing
def list_targets(
    *,
    label: str | None = None,
    owner: str | None = None,
    gpu: str | None = None,
    driver: str | None = None,
    search: str | None = None,
) -> Request[Page[TargetBody]]:
    """List targets by name.

    Args:
        label: label, such as ``tier=prod``.
        owner: owner of the target.
        gpu: GPU of a pool, as written.
        driver: driver of a pool, as written.
        search: part of the name, in upper or lower case.
    """
    return pages(
        "/targets",
        TargetBody,
        label=label,
        owner=owner,
        gpu=gpu,
        driver=driver,
        search=search,
    )


@Operation
def create_target(
    target: TargetDocument, *, reason: str, force: bool | None = None
) -> Request[TargetBody]:
    """Create a target, with a reason; ``force``: as for `change_target`."""
    body = document(target, reason)
    return post("/targets", TargetBody, body=body, reads=TargetChange, force=force)


@Operation
def show_target(name: str) -> Request[TargetBody]:
    """Show a target."""
    return get("/targets/{name}", TargetBody, name=name)


@Operation
def change_target(
    name: str,
    target: TargetDocument,
    *,
    reason: str,
    if_match: str | int | None = None,
    force: bool | None = None,
) -> Request[TargetBody]:
    """Replace a target with a document.

    Args:
        name: name of the target.
        target: new document.
        reason: reason of the change.
        if_match: entity tag or revision that the target must have.
        force: accept suites that a worker will bring later.
    """
    body = document(target, reason)
    return put(
        "/targets/{name}",
        TargetBody,
        body=body,
        reads=TargetChange,
        if_match=if_match,
        name=name,
        force=force,
    )


@Operation
def delete_target(name: str, *, reason: str, if_match: str | int | None = None) -> Request[Made]:
    """Delete a target; its history stays. Arguments as `change_target`."""
    return delete("/targets/{name}", Made, if_match=if_match, name=name, reason=reason)


@Listing
def list_approvals(*, waiting: bool | None = None) -> Request[Page[ApprovalBody]]:
    """List changes that wait or waited for a second person, newest first.

    Args:
        waiting: whether they can still be approved.
    """
    return pages("/approvals", ApprovalBody, waiting=waiting)


@Operation
def show_approval(id: str) -> Request[ApprovalBody]:  # noqa: A002 - the name in the path
    """Show a change that waits or waited for a second person."""
    return get("/approvals/{id}", ApprovalBody, id=id)


@Operation
def approve_change(
    id: str,  # noqa: A002 - the name in the path
    *,
    digest: str | None,
    comment: str | None = None,
) -> Request[ApprovalBody]:
    """Approve a change as the second person, and make it.

    Args:
        id: of the approval.
        digest: of the change that you read; None: the refusal shows it.
        comment: on the approval.
    """
    body = members(digest=digest, comment=comment)
    return post("/approvals/{id}/approve", ApprovalBody, body=body, reads=ApproveRequest, id=id)


@Operation
def refuse_change(id: str) -> Request[ApprovalBody]:  # noqa: A002 - the name in the path
    """Refuse a change that waits for a second person."""
    return post("/approvals/{id}/refuse", ApprovalBody, id=id)


@Listing
def list_target_pools(name: str) -> Request[Page[PoolRowBody]]:
    """List the pools of a target."""
    return pages("/targets/{name}/pools", PoolRowBody, name=name)


@Listing
def list_pools(
    *, target: str | None = None, gpu: str | None = None, driver: str | None = None
) -> Request[Page[PoolRowBody]]:
    """List the pools of all targets by target and name; GPU and driver as written."""
    return pages("/pools", PoolRowBody, target=target, gpu=gpu, driver=driver)


WaiverDocument = WaiverChange | Mapping[str, Any]


@Listing
def list_waivers(
    *,
    target: str | None = None,
    owner: str | None = None,
    active_on: date | str | None = None,
    search: str | None = None,
) -> Request[Page[WaiverBody]]:
    """List waivers by name.

    Args:
        target: target of the waiver.
        owner: owner of the waiver.
        active_on: day on which the waiver must still be valid.
        search: part of the name, in upper or lower case.
    """
    return pages(
        "/waivers", WaiverBody, target=target, owner=owner, active_on=active_on, search=search
    )


@Operation
def create_waiver(waiver: WaiverDocument, *, reason: str) -> Request[WaiverBody]:
    """Create a waiver, with a reason."""
    body = document(waiver, reason)
    return post("/waivers", WaiverBody, body=body, reads=WaiverChange)


@Operation
def show_waiver(name: str) -> Request[WaiverBody]:
    """Show a waiver."""
    return get("/waivers/{name}", WaiverBody, name=name)


@Operation
def change_waiver(
    name: str, waiver: WaiverDocument, *, reason: str, if_match: str | int | None = None
) -> Request[WaiverBody]:
    """Replace a waiver with a document.

    Args:
        name: name of the waiver.
        waiver: new document.
        reason: reason of the change.
        if_match: entity tag or revision that the waiver must have.
    """
    body = document(waiver, reason)
    return put(
        "/waivers/{name}",
        WaiverBody,
        body=body,
        reads=WaiverChange,
        if_match=if_match,
        name=name,
    )


@Operation
def delete_waiver(name: str, *, reason: str, if_match: str | int | None = None) -> Request[Made]:
    """Delete a waiver; its history stays. Arguments as `change_waiver`."""
    return delete("/waivers/{name}", Made, if_match=if_match, name=name, reason=reason)


@Operation
def plan(name: str, body: PlanRequest | Mapping[str, Any]) -> Request[PlanBody]:
    """Plan an upgrade of driver or CUDA on a target.

    Args:
        name: of the target.
        body: the changes as ``set`` or ``upgrade``.
    """
    path = "/targets/{name}/plan"
    request = post(path, PlanBody, body=body, reads=PlanRequest, repeatable=True, name=name)
    return structs.replace(request, patience=LONG_S)


@Operation
def report(
    name: str, *, since: Moment | None = None, until: Moment | None = None
) -> Request[TargetReportBody]:
    """Report what happened on a target, and what would be answered today.

    Args:
        name: of the target.
        since: when the period begins; None: 7 days before its end.
        until: when it ends; None: now.
    """
    path = "/targets/{name}/report"
    request = get(path, TargetReportBody, name=name, since=since, until=until)
    return structs.replace(request, patience=LONG_S)


@Operation
def list_dependents(name: str) -> Request[DependentsBody]:
    """List what depends on an entry: targets, recorded stacks, nodes and other entries.

    Args:
        name: of the entry.
    """
    request = get("/entries/{name}/dependents", DependentsBody, name=name)
    return structs.replace(request, patience=LONG_S)
