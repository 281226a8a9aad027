"""Declare a page once: its access, its parameters and its place in the navigation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import Struct

from compatgate.errors import BadInput
from compatgate.kit.http.requests import given_reason
from compatgate.service.matrix.service import Authorship
from compatgate.service.web.route import NoQuery, Scope

if TYPE_CHECKING:
    from compatgate.kit.ui.tables import Table
    from compatgate.service.gate.service import Gate
    from compatgate.service.tokens.service import Principal
    from compatgate.service.web.call import Service

Q = TypeVar("Q", bound=Struct)


class PageRequest(Struct, Generic[Q], frozen=True):
    """A request for a page.

    Attributes:
        args: values of the path.
        query: validated query parameters.
        form: the posted form.
    """

    service: Service
    page: Page
    principal: Principal
    args: dict[str, Any]
    query: Q
    form: dict[str, str]

    @property
    def gate(self) -> Gate:
        """Return the gate that answers."""
        return self.service.gate

    def by(self) -> Authorship:
        """Return the author of a change, and the form's ``reason``.

        Raises:
            BadInput: no reason was given.
        """
        return Authorship(self.principal.name, given_reason(None, self.form.get("reason")))


class HtmlPage(Struct, frozen=True):
    """A page to render.

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


class Redirect(Struct, frozen=True):
    """A redirection to another page after an action.

    Attributes:
        place: path below the application's root, ``/ui/tokens``.
        done: result of the action, shown there once.
    """

    place: str
    done: str = ""


PageAnswer = HtmlPage | Redirect
Handler = Callable[[PageRequest[Any]], Any]


class Page(Struct, frozen=True):
    """A page, or the action of a form.

    Attributes:
        path: below ``/ui``, in Flask's form.
        nav: its item in the navigation.
    """

    path: str
    handler: Handler
    scope: Scope | None
    method: Literal["GET", "POST"]
    nav: str
    query: type[Struct]

    @property
    def endpoint(self) -> str:
        """Return the name of the endpoint, unique among pages."""
        return self.handler.__name__


def page(
    path: str,
    *,
    scope: Scope | None = "read",
    method: Literal["GET", "POST"] = "GET",
    nav: str = "",
    query: type[Q] = NoQuery,  # type: ignore[assignment]
) -> Callable[[Callable[[PageRequest[Q]], Any]], Page]:
    """Make a handler a page; arguments are those of `Page`."""

    def make(handler: Callable[[PageRequest[Q]], Any]) -> Page:
        return Page(path, handler, scope, method, nav, query)

    return make


MOST_CHOICES = 200
"""Maximum number of choices in a form."""
_DIGITS = 9


def expected_revision(form: Mapping[str, str]) -> int:
    """Return the revision of the document that the form shows.

    Raises:
        BadInput: it is missing, or not a number.
    """
    text = form.get("revision", "")
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS:
        raise BadInput("is not a revision", field="revision", value=text, hint="reload the page")
    return int(text)


def choices(values: Iterable[str]) -> list[str] | None:
    """Return the choices of a form; None: too many choices, so the user types."""
    found = sorted(set(values))
    return found if len(found) <= MOST_CHOICES else None
