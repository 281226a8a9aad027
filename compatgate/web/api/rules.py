"""The rules of the gate, documented by themselves."""

from __future__ import annotations

from compatgate.core.rules import BY_ID, RULES
from compatgate.core.rules.base import Rule
from compatgate.documents.names import did_you_mean
from compatgate.errors import NotFound
from compatgate.web.call import Call, Reply
from compatgate.web.paging import Paged, page, slice_page
from compatgate.web.route import NoQuery, Returns, route
from compatgate.wire.facts import RuleBody


def _body(rule: Rule) -> RuleBody:
    return RuleBody(rule.id, rule.name, rule.about_facts, rule.documentation)


@route(
    "GET",
    "/rules",
    scope="read",
    tag="facts",
    query=Paged,
    returns=Returns(RuleBody, "A page of rules", paged=True, etag=True),
)
def list_rules(call: Call[Paged]) -> Reply:
    """List the rules, each with its documentation."""
    return page(slice_page(RULES, call.query), _body)


@route(
    "GET",
    "/rules/{id}",
    scope="read",
    tag="facts",
    returns=Returns(RuleBody, "The rule", etag=True),
    errors=(404,),
)
def show_rule(call: Call[NoQuery]) -> Reply:
    """Show what a rule checks, why, and how to mend what it finds."""
    rule_id: str = call.args["id"].upper()
    if rule_id not in BY_ID:
        hint = did_you_mean(rule_id, BY_ID)
        raise NotFound(f"there is no rule {rule_id}", field="id", value=rule_id, hint=hint)
    return Reply(_body(BY_ID[rule_id]))
