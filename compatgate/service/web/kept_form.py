"""Keep what was typed into a form that was refused because its session is over.

The answer shows the fields and sends them again once the person has signed in. It is given to this
site's own forms alone: another site must not put words into a person's mouth.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from flask import request
from werkzeug.exceptions import HTTPException

from compatgate.errors import CompatgateError, Unauthorized
from compatgate.kit.http.replies import to_problem
from compatgate.service.tokens.principal import Principal
from compatgate.service.web import browser
from compatgate.service.web.page import HtmlPage, Page

_NOT_SHOWN = ("shown",)
"""Fields that people do not type."""
_LARGEST = 1_000_000
"""Characters of the largest form that is kept: its sender may be anybody."""


def keep_form(error: CompatgateError, page: Page, principal: Principal) -> HtmlPage | None:
    """Return the page that keeps a refused form; None: the error is shown as any other."""
    over = isinstance(error, Unauthorized | browser.StaleForm)
    if not over or page.method != "POST" or page.scope is None or not _is_own_form():
        return None
    try:
        fields = [one for one in request.form.items(multi=True) if one[0] != browser.FIELD]
    except HTTPException:  # no form, or too large
        return None
    if sum(len(name) + len(text) for name, text in fields) > _LARGEST:
        return None
    context = {
        "error": error,
        "problem": to_problem(error),
        "place": request.full_path.rstrip("?"),
        "fields": fields,
        "typed": [(name, text) for name, text in fields if text and name not in _NOT_SHOWN],
        "files": any(file.filename for file in request.files.values()),
        "may_send": principal.may(page.scope),
    }
    return HtmlPage("kept-form.html", "Not sent yet", context, status=error.status)


def _is_own_form() -> bool:
    """Return whether the browser says that a page of this site sent the request."""
    if browser.is_bearer() or request.headers.get("HX-Request"):
        return False
    if site := request.headers.get("Sec-Fetch-Site"):
        return site == "same-origin"
    return urlsplit(request.headers.get("Origin", "")).netloc == request.host  # without TLS
