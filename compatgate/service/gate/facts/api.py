"""Serve the recorded facts of the vendors, and the rules.

The records are the same as in ``compatgate facts show``.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, convert

from compatgate.catalog import browse
from compatgate.catalog.library import Library
from compatgate.catalog.sources import title
from compatgate.core.rules import BY_ID, RULES
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound
from compatgate.kit.http.replies import Reply, page_reply, slice_page
from compatgate.kit.http.route import Call, NoQuery, Returns, Routes
from compatgate.kit.http.schemas import Filter, ListQuery, Search
from compatgate.service.gate.facts.schemas import FactRecord, FactsBody, FactTable, RuleBody
from compatgate.service.gate.questions.service import Gate

routes = Routes("facts", targets="free")


class FactFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of records."""

    part: Annotated[Filter, Meta(description="name of a list in the table")] | None = None
    search: Search | None = None


@routes.get("/facts", Returns(FactsBody, "The tables, and the digest of all facts", etag=True))
def list_tables(call: Call[NoQuery]) -> Reply:
    """List the tables of facts."""
    facts = call.use(Gate).facts
    return Reply(FactsBody(facts.digest, list(facts.overlays), read_tables(call.use(Library))))


@routes.pages("/facts/{table}", FactRecord, "A page of records", query=FactFilters, errors=(404,))
def list_facts(call: Call[FactFilters]) -> Reply:
    """List the records of a table (`gpus`, `cudnn`, `torch`), each with its sources."""
    wanted, part = (call.query.search or "").lower(), call.query.part
    found = [
        record
        for record in read_records(call.use(Library), call.args["table"])
        if wanted in record.name.lower() and part in (None, record.part)
    ]
    return page_reply(slice_page(found, call.query), lambda record: record)


@routes.shows(
    "/facts/{table}/{key}", dict[str, list[dict[str, Any]]], "Records by list of the table"
)
def show_fact(call: Call[NoQuery]) -> Reply:
    """Show the records of a key: a version, a series, or any spelling of a GPU."""
    source = _find_source(call.use(Library), call.args["table"])
    document = call.use(Library).document(source)
    try:
        return Reply(browse.find_records(source, document, call.args["key"]))
    except BadInput as error:
        raise _not_found(error) from None


def read_tables(library: Library) -> list[FactTable]:
    """Return every table, with the number of its records."""
    found = []
    for name in library.names:
        document = library.document(name)
        parts = {part: len(document[part]) for part in browse.keyed_lists(name, document)}
        found.append(FactTable(title(name), parts))
    return found


def read_records(library: Library, table: str) -> list[FactRecord]:
    """Return the records of a table."""
    source = _find_source(library, table)
    document = library.document(source)
    return [
        FactRecord(part, browse.record_name(record, key), record)
        for part, key in browse.keyed_lists(source, document).items()
        for record in document[part]
    ]


def _find_source(library: Library, table: str) -> str:
    try:
        return browse.find_source(table, library.names)
    except BadInput as error:
        raise _not_found(error) from None


def _not_found(error: BadInput) -> NotFound:
    return NotFound(error.problem, field=error.field, value=error.value, hint=error.hint)


@routes.pages("/rules", RuleBody, "A page of rules", query=ListQuery)
def list_rules(call: Call[ListQuery]) -> Reply:
    """List the rules, each with its documentation."""
    return page_reply(
        slice_page(RULES, call.query), lambda rule: convert(rule, RuleBody, from_attributes=True)
    )


@routes.shows("/rules/{id}", RuleBody, "The rule")
def show_rule(call: Call[NoQuery]) -> Reply:
    """Show what a rule checks, why, and how to fix its findings."""
    rule_id: str = call.args["id"].upper()
    if rule_id not in BY_ID:
        hint = suggest_name(rule_id, BY_ID)
        raise NotFound(f"rule {rule_id} does not exist", field="id", value=rule_id, hint=hint)
    return Reply(convert(BY_ID[rule_id], RuleBody, from_attributes=True))
