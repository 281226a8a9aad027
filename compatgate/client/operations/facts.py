"""The vendors' facts, and the rules."""

from __future__ import annotations

from typing import Any

from compatgate.client.operation import Listing, Operation
from compatgate.client.request import Request, get, pages
from compatgate.wire.facts import FactRecord, FactsBody, RuleBody
from compatgate.wire.matrix import Page


@Operation
def list_tables() -> Request[FactsBody]:
    """List the tables of facts."""
    return get("/facts", FactsBody)


@Listing
def list_facts(
    table: str, *, part: str | None = None, search: str | None = None
) -> Request[Page[FactRecord]]:
    """List the records of a table (`gpus`, `cudnn`, `torch`), each with its sources.

    Args:
        table: its name.
        part: list of the table.
        search: part of the name, in any case.
    """
    return pages("/facts/{table}", FactRecord, table=table, part=part, search=search)


@Operation
def show_fact(table: str, key: str) -> Request[dict[str, list[dict[str, Any]]]]:
    """Show the records that a key names: a version, a series, any spelling of a GPU."""
    return get("/facts/{table}/{key}", dict[str, list[dict[str, Any]]], table=table, key=key)


@Listing
def list_rules() -> Request[Page[RuleBody]]:
    """List the rules, each with its documentation."""
    return pages("/rules", RuleBody)


@Operation
def show_rule(id: str) -> Request[RuleBody]:  # noqa: A002 - the path's name
    """Show what a rule checks, why, and how to mend what it finds."""
    return get("/rules/{id}", RuleBody, id=id)
