"""Serve the facts and rules, and what follows: stacks that pass, and the causes of an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, convert

from compatgate.catalog import browse
from compatgate.catalog.library import Library
from compatgate.catalog.sources import title
from compatgate.core.rules import BY_ID, RULES
from compatgate.core.solve import answer_question
from compatgate.core.stated_text import complete_question
from compatgate.core.triage import FoundCause, compare_verdict, find_causes
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound
from compatgate.kit import clock
from compatgate.kit.http.replies import Reply, page_reply, slice_page
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.kit.http.schemas import Filter, ListQuery, Search
from compatgate.service.gate.advice.schemas import (
    SOLVE_EXAMPLES,
    TRIAGE_EXAMPLES,
    FactRecord,
    FactsBody,
    FactTable,
    RuleBody,
    SolveBody,
    SolveRequest,
    TriageBody,
    TriageRequest,
)
from compatgate.service.gate.questions.service import Gate

fact_routes = Routes("facts", targets="free")
solve_routes = Routes("gate", targets="checked", scope="plan")
triage_routes = Routes("gate", scope="gate")


class FactFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of records."""

    part: Annotated[Filter, Meta(description="name of a list in the table")] | None = None
    search: Search | None = None


@fact_routes.get("/facts", Returns(FactsBody, "The tables, and the digest of all facts", etag=True))
def list_tables(call: Call[NoQuery]) -> Reply:
    """List the tables of facts."""
    facts = call.use(Gate).facts
    return Reply(FactsBody(facts.digest, list(facts.overlays), read_tables(call.use(Library))))


@fact_routes.pages(
    "/facts/{table}", FactRecord, "A page of records", query=FactFilters, errors=(404,)
)
def list_facts(call: Call[FactFilters]) -> Reply:
    """List the records of a table (`gpus`, `cudnn`, `torch`), each with its sources."""
    wanted, part = (call.query.search or "").lower(), call.query.part
    found = [
        record
        for record in read_records(call.use(Library), call.args["table"])
        if wanted in record.name.lower() and part in (None, record.part)
    ]
    return page_reply(slice_page(found, call.query), lambda record: record)


@fact_routes.shows(
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


@fact_routes.pages("/rules", RuleBody, "A page of rules", query=ListQuery)
def list_rules(call: Call[ListQuery]) -> Reply:
    """List the rules, each with its documentation."""
    return page_reply(
        slice_page(RULES, call.query), lambda rule: convert(rule, RuleBody, from_attributes=True)
    )


@fact_routes.shows("/rules/{id}", RuleBody, "The rule")
def show_rule(call: Call[NoQuery]) -> Reply:
    """Show what a rule checks, why, and how to fix its findings."""
    rule_id: str = call.args["id"].upper()
    if rule_id not in BY_ID:
        hint = suggest_name(rule_id, BY_ID)
        raise NotFound(f"rule {rule_id} does not exist", field="id", value=rule_id, hint=hint)
    return Reply(convert(BY_ID[rule_id], RuleBody, from_attributes=True))


@solve_routes.post(
    "/solve",
    Returns(SolveBody, "Stacks that pass, or the nearest misses"),
    body=Body(SolveRequest, examples=SOLVE_EXAMPLES, argument="body"),
    errors=(404,),
)
def solve(call: Call[NoQuery]) -> Reply:
    """Find the newest whole stacks that pass on a target, or on every one of several.

    Candidates come from the facts, the entries of the matrix and measured runs. The gate evaluates
    each stack as `POST /gate` does, and returns those whose verdict is pass or warn: fewest changes
    from `from` first, then the newest wanted versions, then those without warnings. Nothing is
    logged. The work is limited: `complete` is false where the search ended at its limit. Only where
    it is true and `unknown` is empty does an answer without stacks say that none passes.
    """
    question = call.document()
    named = question.get("targets") or [question.get("target")]
    call.principal.require_targets(
        [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    )
    snapshot = call.use(Gate).snapshot()
    found = call.use(Gate).compute(
        answer_question,
        question,
        snapshot.target,
        facts=snapshot.facts,
        matrix=snapshot.matrix,
        now=clock.now(),
    )
    return Reply(call.use(Gate).with_state(found))


class NamedCauses(NamedTuple):
    """The causes that a text shows, and what it states of the stack and its place."""

    causes: tuple[FoundCause, ...]
    stated: dict[str, str]


def name_causes(gate: Gate, text: str, question: Mapping[str, Any]) -> NamedCauses:
    """Return the causes that a text shows. Nothing is stored or logged.

    ``question``: body of ``POST /gate``; the text's own versions, driver and GPU count where it
    leaves them out. Empty, and nothing stated: no stack is compared.
    """
    causes = find_causes(text, gate.facts.error_signatures)
    whole, stated = complete_question(question, text, gate.facts) if causes else (question, {})
    if whole:
        causes = compare_verdict(causes, gate.preview(whole).to_json())
    return NamedCauses(causes, stated)


@triage_routes.post(
    "/triage",
    Returns(TriageBody, "The causes; a text that is not recognised also returns 200"),
    body=Body(TriageRequest, examples=TRIAGE_EXAMPLES),
    errors=(404, 502, 503, 504),
)
def triage(call: Call[NoQuery]) -> Reply:
    """Find the causes of an error text.

    With a stack on a target or pool, the answer also says whether the rules behind a cause fail
    there, with fixes that were evaluated there. Versions, driver and GPU that the text states
    count where the question leaves them out; `stated` lists them. The text is neither stored nor
    logged, and no decision is logged.
    """
    document = call.document()
    asked = to_struct(document, TriageRequest)
    question = {name: value for name, value in document.items() if name != "text"}
    found = name_causes(call.use(Gate), asked.text, question)
    causes = [cause.to_json() for cause in found.causes]
    return Reply({"causes": causes, "stated": found.stated})
