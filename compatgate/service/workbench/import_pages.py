"""Import pasted or uploaded documents, after a preview of the differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatgate.documents.sources import Source
from compatgate.documents.specs import Change
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.http.links import link
from compatgate.service.matrix.imports import ImportResult
from compatgate.service.web.page import HtmlPage, PageRequest, Redirect, page
from compatgate.service.workbench.acts import check_author, propose_text, read_uploads
from compatgate.service.workbench.editing import FILE

_MAX_CHANGES = 50
"""Documents whose differences the page of an import shows."""


@page("/import", scope="bless", nav="revisions")
def begin_import(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form of an import."""
    return _import_page(ask, {})


@page("/import", scope="bless", method="POST", nav="revisions")
def import_files(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Show what pasted or uploaded documents would change, import them, or propose them."""
    what = ask.form.get("what", "check")
    typed = {**ask.form}
    try:
        typed["documents"] = text = read_uploads() or ask.form.get("documents", "")
        if not text.strip():
            hint = "paste YAML or JSON, or choose files"
            raise BadInput("no documents are given", field="documents", hint=hint)
        sources = [Source(FILE, text.replace("\r\n", "\n"), ask.service.settings.max_values)]
        if what == "propose":
            return propose_text(ask, text)
        if what not in ("check", "import"):
            hint = "one of check, import, propose"
            raise BadInput("is not an action", field="what", value=what, hint=hint)
        by = check_author(ask) if what == "check" else ask.by()
        result = ask.gate.matrix.import_documents(sources, by, dry_run=what == "check")
    except CompatgateError as error:
        return _import_page(ask, typed, error=error)
    if what == "check" or result.revision is None:
        return _import_page(ask, typed, planned=result)
    count = len(result.changes)
    done = f"Imported {count} document{'' if count == 1 else 's'} as revision {result.revision}."
    return Redirect(link("revisions", result.revision), done=done)


def _import_page(
    ask: PageRequest[Any],
    typed: Mapping[str, str],
    *,
    planned: ImportResult | None = None,
    error: CompatgateError | None = None,
) -> HtmlPage:
    changes: tuple[Change, ...] = planned.changes if planned else ()
    context = {
        "typed": typed,
        "error": error,
        "planned": planned,
        "changes": changes[:_MAX_CHANGES],
        "left": max(0, len(changes) - _MAX_CHANGES),
    }
    return HtmlPage("import.html", "Import", context, status=error.status if error else 200)
