"""One declaration per page, as one per route: who may see it, what it takes, where it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import Struct

from compatgate.gate.matrix import By
from compatgate.web.reasons import given_reason
from compatgate.web.route import NoQuery, Scope

if TYPE_CHECKING:
    from compatgate.gate.auth import Principal
    from compatgate.gate.service import Gate
    from compatgate.web.call import Service
    from compatgate.web.ui.tables import Table

PREFIX = "/ui"
Q = TypeVar("Q", bound=Struct)


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
