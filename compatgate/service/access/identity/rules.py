"""Turn verified claims into what somebody may do: groups of people, rules for jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from compatgate.errors import Forbidden
from compatgate.service.access.identity.settings import (
    OWNERS,
    JobIssuer,
    JobRule,
    PeopleSettings,
    patterns,
)

_LONGEST = 128
_MAX_VALUES = 256
_UNREADABLE = re.compile(r"[^\w.@+:/\- ]")


class Access(Struct, frozen=True):
    """The rights of a person or job.

    ``targets``: patterns of the targets that the scopes are for; None: every target.
    """

    scopes: frozenset[str]
    targets: tuple[str, ...] | None = None


class Person(Struct, frozen=True):
    """A person as the issuer describes them.

    Attributes:
        subject: the issuer's stable id.
        name: what people know them by; empty: the issuer does not say.
        groups: those that the settings name.
    """

    issuer: str
    subject: str
    name: str
    email: str
    groups: tuple[str, ...]

    @property
    def label(self) -> str:
        """Return the name for logs: readable, and with the subject, which nobody else has."""
        return label(self.email or self.name, self.subject)


def label(name: str, subject: str) -> str:
    """Return ``name (subject)``; no token can have such a name."""
    shown = _readable(name)
    return f"{shown} ({_readable(subject)})" if shown else f"({_readable(subject)})"


def _readable(text: str) -> str:
    return _UNREADABLE.sub("_", text)[:_LONGEST].strip()


def person_of(claims: Mapping[str, Any], people: PeopleSettings) -> Person:
    """Return who signed in, with the groups that the settings name."""
    names = people.claims
    listed = claim(claims, names.groups)
    groups = [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else []
    return Person(
        people.issuer,
        str(claims["sub"]),
        _text(claim(claims, names.name)),
        _text(claim(claims, names.email)),
        tuple(name for name in people.groups if name in groups),
    )


def _text(value: Any) -> str:
    return _UNREADABLE.sub("_", value)[:_LONGEST] if isinstance(value, str) else ""


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim; a dot leads into an object, unless a claim has that very name."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def access_of(groups: Iterable[str], people: PeopleSettings) -> Access:
    """Return what members of groups may do.

    Groups without targets add up, with the default scopes. Somebody who has none of them has the
    first group of the settings with targets, and the default scopes, for these targets. Rights of
    groups with different targets are never mixed: that would allow more than either says.
    """
    grants = [people.grant(name) for name in people.groups if name in set(groups)]
    default = frozenset[str](people.default)
    plain = [grant for grant in grants if grant.targets is None]
    if plain or not grants:
        return Access(default.union(*(grant.scopes for grant in plain)))
    first = grants[0]
    return Access(default | frozenset(first.scopes), tuple(first.targets or ()))


def rule_of(claims: Mapping[str, Any], jobs: JobIssuer) -> JobRule:
    """Return the first rule that the claims of a job match."""
    every: list[list[str]] = []
    for rule in jobs.rules:
        missed = [name for name, globs in rule.claims.items() if not _matches(claims, name, globs)]
        if not missed:
            return rule
        every.append(missed)
    owners = OWNERS.get(urlsplit(jobs.issuer).hostname or "", ())

    def distance(missed: Sequence[str]) -> tuple[int, int, int]:
        """Order rules: those for another owner or kind of token come last."""
        absent = [name for name in missed if claim(claims, name) is None]
        return sum(name in owners for name in missed), len(absent), len(missed)

    nearest = min(every, key=distance)
    # who owns no rule learns nothing about the rules of others
    mismatches = [name for name in nearest if name in owners] or nearest
    shown = [f"{name} is {_given(claims, name)}" for name in mismatches]
    raise Forbidden(
        f"no rule of this gate matches the job: {'; '.join(shown)}",
        field=nearest[0],
        hint="the operator's file for --oidc lists the rules",
    )


def _given(claims: Mapping[str, Any], name: str) -> str:
    value = claim(claims, name)
    return "missing" if value is None else repr(_plain(value))[: _LONGEST * 2]


def _plain(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _matches(claims: Mapping[str, Any], name: str, globs: Any) -> bool:
    value = claim(claims, name)
    values = value if isinstance(value, list) else [value]
    texts = [str(_plain(one)) for one in values if isinstance(one, str | bool | int)]
    return any(matches(glob, text) for glob in patterns(globs) for text in texts[:_MAX_VALUES])


def matches(glob: str, text: str) -> bool:
    """Return whether a glob matches a text: ``*`` stops at ``/``, ``**`` does not."""
    return _compiled(glob).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _compiled(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*{2,}|\*|\?)", glob)
    kinds = {"*": "[^/]*", "?": "[^/]"}
    made = [".*" if part.startswith("**") else kinds.get(part, re.escape(part)) for part in parts]
    return re.compile("".join(made), re.DOTALL)
