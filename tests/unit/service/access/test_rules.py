"""Claims become rights: never more than one group or rule of the file says."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.errors import Forbidden
from compatgate.service.access.settings import (
    Access,
    ClaimNames,
    Grant,
    JobIssuer,
    JobRule,
    PeopleSettings,
    access_of,
    claim,
    matches,
    person_of,
    rule_of,
)

GROUPS: dict[str, Any] = {
    "platform": ["read", "bless"],
    "gaters": ["gate"],
    "trainers": Grant(["gate", "operate"], ["prod-*"]),
    "lab": Grant(["bless"], ["lab-*"]),
}


def people(**settings: Any) -> PeopleSettings:
    return PeopleSettings("https://id.example", "compatgate", **{"groups": GROUPS, **settings})


@pytest.mark.parametrize(
    ("groups", "scopes", "targets"),
    [
        ([], {"read"}, None),
        (["gaters"], {"read", "gate"}, None),
        (["gaters", "platform"], {"read", "gate", "bless"}, None),
        (["trainers"], {"read", "gate", "operate"}, ("prod-*",)),
        (["lab", "trainers"], {"read", "gate", "operate"}, ("prod-*",)),
        (["lab", "gaters"], {"read", "gate"}, None),
    ],
)
def test_groups_add_up_and_are_never_mixed(
    groups: list[str], scopes: set[str], targets: tuple[str, ...] | None
) -> None:
    assert access_of(groups, people(default=["read"])) == Access(frozenset(scopes), targets)


def test_somebody_without_a_group_has_nothing() -> None:
    assert access_of(["cooks"], people()) == Access(frozenset(), None)


@pytest.mark.parametrize(
    ("claims", "name", "found"),
    [
        ({"groups": ["a"]}, "groups", ["a"]),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", ["a"]),
        ({"https://id.example/groups": ["a"]}, "https://id.example/groups", ["a"]),
        ({"realm_access": 7}, "realm_access.roles", None),
        ({}, "groups", None),
    ],
)
def test_a_claim_may_be_in_an_object(claims: dict[str, Any], name: str, found: Any) -> None:
    assert claim(claims, name) == found


@pytest.mark.parametrize(
    ("told", "groups"),
    [
        (["platform", "cooks", 7], ("platform",)),
        ("platform", ("platform",)),
        ({"platform": True}, ()),
        (None, ()),
        (["PLATFORM"], ()),
    ],
)
def test_only_named_groups_are_kept(told: Any, groups: tuple[str, ...]) -> None:
    assert person_of({"sub": "1", "groups": told}, people()).groups == groups


def test_a_name_cannot_pass_for_another() -> None:
    claims = {"sub": "u-1", "email": "root (u-2)\n\x00" + "x" * 500, "preferred_username": 7}
    person = person_of(claims, people(claims=ClaimNames()))
    assert person.label.endswith("(u-1)")
    assert person.label.count("(") == 1
    assert person.label.isprintable()
    assert person.name == ""


@pytest.mark.parametrize(
    ("glob", "text", "fits"),
    [
        ("acme/*", "acme/trainer", True),
        ("acme/*", "acme/a/b", False),
        ("acme/**", "acme/a/b", True),
        ("acme/*", "xacme/a", False),
        ("refs/heads/release-?", "refs/heads/release-1", True),
        ("a.c", "abc", False),
        ("a*", "a\nb", True),
        ("[a]", "a", False),
    ],
)
def test_a_star_stops_at_a_slash(glob: str, text: str, fits: bool) -> None:
    assert matches(glob, text) is fits


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"repository": "acme/x", "ref": "refs/heads/dev"}, "ref is 'refs/heads/dev'"),
        ({"project": "acme/x", "protected": False}, "protected is 'false'"),
        ({"repository": "evil/x", "ref": "refs/heads/main"}, "repository is 'evil/x'"),
        ({}, "repository is missing; ref is missing"),
    ],
)
def test_the_nearest_rule_says_what_is_wrong(claims: dict[str, Any], told: str) -> None:
    rules = [
        JobRule("a", {"repository": "acme/*", "ref": "refs/heads/main"}, ["gate"]),
        JobRule("b", {"project": "acme/*", "protected": True}, ["gate"]),
    ]
    with pytest.raises(Forbidden) as refused:
        rule_of(claims, JobIssuer("https://ci.example", "https://gate.example", rules))
    assert refused.value.problem == f"no rule of this gate matches the job: {told}"


def test_who_owns_no_rule_learns_nothing_about_the_rules_of_others() -> None:
    claims = {"repository": "acme/secret", "environment": "prod", "ref": "refs/heads/main"}
    github = "https://token.actions.githubusercontent.com"
    jobs = JobIssuer(github, "https://gate.example", [JobRule("a", claims, ["gate"])])
    stranger = {"repository": "evil/x", "ref": "refs/heads/dev"}
    with pytest.raises(Forbidden) as refused:
        rule_of(stranger, jobs)
    assert refused.value.problem.endswith("the job: repository is 'evil/x'")
    assert "secret" not in refused.value.detail
