"""One declaration per page, as one per route: who may see it, what it takes, where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from flask import request
from msgspec import Struct

from compatgate.gate.matrix import By
from compatgate.store.paging import MOST
from compatgate.web.reasons import given_reason
from compatgate.web.route import NoQuery, Scope

if TYPE_CHECKING:
    from compatgate.gate.auth import Principal
    from compatgate.gate.service import Gate
    from compatgate.store.paging import Page as Part
    from compatgate.web.call import Service
    from compatgate.web.ui.tables import Table

PREFIX = "/ui"
EXPORTED = 10_000
"""At most so many rows are exported at once; the file's last line says when there were more."""
Q = TypeVar("Q", bound=Struct)


class Listing(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query parameters of every page with a table."""

    sort: str | None = None
    """Key of the column to sort by, with ``-`` before it for the other direction."""
    format: Literal["csv"] | None = None


class LongListing(Listing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query parameters of a page whose table may go on for ever."""

    cursor: str | None = None


class Ask(Struct, Generic[Q], frozen=True):
    """One request for a page.

    Attributes:
        args: values of the path.
        query: validated query parameters.
        form: what was posted.
    """

    service: Service
    page: Page
    principal: Principal
    args: dict[str, Any]
    query: Q
    form: dict[str, str]

    @property
    def gate(self) -> Gate:
        """The gate that answers."""
        return self.service.gate

    def by(self) -> By:
        """Who changes, and why, as the form's ``reason`` says.

        Raises:
            BadInput: no reason was given.
        """
        return By(self.principal.name, given_reason(None, self.form.get("reason")))


class Shown(Struct, frozen=True):
    """A page to be rendered.

    Attributes:
        template: below ``templates``.
        title: of the page.
        context: for the template.
        table: the page's main table, which its CSV export is made of.
    """

    template: str
    title: str
    context: dict[str, Any] = {}
    table: Table | None = None
    status: int = 200


class Goto(Struct, frozen=True):
    """On to another page, after something was done.

    Attributes:
        place: path below the application's root, ``/ui/tokens``.
        done: what was done, shown there once.
    """

    place: str
    done: str = ""


Answer = Shown | Goto
Handler = Callable[[Ask[Any]], Any]


class Page(Struct, frozen=True):
    """A page, or what a form does.

    Attributes:
        path: below ``/ui``, in Flask's form.
        nav: which item of the navigation it belongs to.
    """

    path: str
    handler: Handler
    scope: Scope | None
    method: Literal["GET", "POST"]
    nav: str
    query: type[Struct]

    @property
    def endpoint(self) -> str:
        """Unique among the pages."""
        module = self.handler.__module__.rpartition(".")[2]
        return f"{module}_{self.handler.__name__}"


def page(
    path: str,
    *,
    scope: Scope | None = "read",
    method: Literal["GET", "POST"] = "GET",
    nav: str = "",
    query: type[Q] = NoQuery,  # type: ignore[assignment]
) -> Callable[[Callable[[Ask[Q]], Any]], Page]:
    """Make a handler a page; arguments are those of `Page`."""

    def make(handler: Callable[[Ask[Q]], Any]) -> Page:
        return Page(path, handler, scope, method, nav, query)

    return make


def is_narrowed() -> bool:
    """Whether filters, or a further page, leave out some of what there is."""
    return bool({key for key, value in request.args.items() if value} - {"sort", "format"})


def is_export() -> bool:
    """Whether the table is asked for as a file."""
    return request.args.get("format") == "csv"


def rows_of(fetch: Callable[..., Part[Any]], cursor: str | None, **filters: Any) -> Part[Any]:
    """A page of a list; all of it, up to `EXPORTED`, where it is exported.

    Args:
        fetch: one of the gate's lists.
        cursor: where the page begins.
        filters: for ``fetch``.
    """
    from compatgate.store.paging import Page as Part

    if not is_export():
        return fetch(cursor=cursor, **filters)
    items: list[Any] = []
    for part in _parts(fetch, filters):
        items += part.items
        if len(items) >= EXPORTED:
            return Part(tuple(items), part.next)
    return Part(tuple(items))


def found_by(fetch: Callable[..., Part[Any]], query: LongListing, **instead: Any) -> Part[Any]:
    """`rows_of` a list whose filters are the query's own parameters, by their names.

    Args:
        fetch: one of the gate's lists.
        query: of the page.
        instead: filters whose value is not what the query says.
    """
    shared = LongListing.__struct_fields__
    own = [name for name in query.__struct_fields__ if name not in shared]
    filters = {name: getattr(query, name) for name in own}
    return rows_of(fetch, query.cursor, **{**filters, **instead})


def _parts(fetch: Callable[..., Part[Any]], filters: dict[str, Any]) -> Iterator[Part[Any]]:
    cursor = None
    while True:
        part = fetch(**{**filters, "cursor": cursor, "limit": MOST})
        yield part
        cursor = part.next
        if cursor is None:
            return
