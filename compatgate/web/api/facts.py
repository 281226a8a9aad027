"""The vendors' facts as they are recorded: the same records as ``compatgate facts show``."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from compatgate.catalog import browse
from compatgate.catalog.sources import title
from compatgate.errors import BadInput, NotFound
from compatgate.web.call import Call, Reply, Service
from compatgate.web.paging import Filter, Paged, Search, page, slice_page
from compatgate.web.route import NoQuery, Returns, route
from compatgate.wire.facts import FactRecord, FactsBody, FactTable


class FactFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which records to list."""

    part: Annotated[Filter, Meta(description="list of the table")] | None = None
    search: Search | None = None


@route(
    "GET",
    "/facts",
    scope="read",
    tag="facts",
    returns=Returns(FactsBody, "The tables and the digest of all", etag=True),
)
def list_tables(call: Call[NoQuery]) -> Reply:
    """List the tables of facts."""
    facts = call.gate.facts
    return Reply(FactsBody(facts.digest, list(facts.overlays), tables(call.service)))


@route(
    "GET",
    "/facts/{table}",
    scope="read",
    tag="facts",
    query=FactFilters,
    returns=Returns(FactRecord, "A page of records", paged=True, etag=True),
    errors=(404,),
)
def list_facts(call: Call[FactFilters]) -> Reply:
    """List the records of a table (`gpus`, `cudnn`, `torch`), each with its sources."""
    wanted, part = (call.query.search or "").lower(), call.query.part
    found = [
        record
        for record in records(call.service, call.args["table"])
        if wanted in record.name.lower() and part in (None, record.part)
    ]
    return page(slice_page(found, call.query), lambda record: record)


@route(
    "GET",
    "/facts/{table}/{key}",
    scope="read",
    tag="facts",
    returns=Returns(dict[str, list[dict[str, Any]]], "Records by list of the table", etag=True),
    errors=(404,),
)
def show_fact(call: Call[NoQuery]) -> Reply:
    """Show the records that a key names: a version, a series, any spelling of a GPU."""
    source = _source(call.service, call.args["table"])
    document = call.service.facts.document(source)
    try:
        return Reply(browse.find(source, document, call.args["key"]))
    except BadInput as error:
        raise _missing(error) from None


def tables(service: Service) -> list[FactTable]:
    """Every table, with the number of its records."""
    found = []
    for name in service.facts.names:
        document = service.facts.document(name)
        parts = {part: len(document[part]) for part in browse.lists(name, document)}
        found.append(FactTable(title(name), parts))
    return found


def records(service: Service, table: str) -> list[FactRecord]:
    """The records of a table.

    Raises:
        NotFound: there is no such table; names near ones.
    """
    source = _source(service, table)
    document = service.facts.document(source)
    return [
        FactRecord(part, browse.name_of(record, key), record)
        for part, key in browse.lists(source, document).items()
        for record in document[part]
    ]


def _source(service: Service, table: str) -> str:
    try:
        return browse.source_of(table, service.facts.names)
    except BadInput as error:
        raise _missing(error) from None


def _missing(error: BadInput) -> NotFound:
    return NotFound(error.problem, field=error.field, value=error.value, hint=error.hint)
