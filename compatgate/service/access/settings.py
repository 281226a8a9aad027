"""Describe the file of ``serve --oidc``, and turn verified claims into what somebody may do.

The file names one issuer for people, whose groups have scopes, and any number of issuers for jobs,
whose claims have scopes by rules. Scopes are read from the file at each request: a group that the
file no longer names opens nothing after a restart, also for people who are signed in.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta, Struct, field

from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, Forbidden
from compatgate.kit.principal import ScopeName

_Text = Annotated[str, Meta(min_length=1, max_length=512)]
_Scopes = Annotated[list[ScopeName], Meta(min_length=1)]
_Patterns = Annotated[list[_Text], Meta(min_length=1)]
OWNERS: dict[str, tuple[str, ...]] = {
    "token.actions.githubusercontent.com": (
        "repository",
        "repository_id",
        "repository_owner",
        "repository_owner_id",
        "enterprise",
        "enterprise_id",
        "sub",
    ),
    "gitlab.com": ("project_path", "project_id", "namespace_path", "namespace_id", "sub"),
}
"""Claims that name the owner of a job, by the host of an issuer that serves everybody.

Sources: https://docs.github.com/en/actions/reference/security/oidc (GitHub) and
https://docs.gitlab.com/ci/secrets/id_token_authentication/ (GitLab).
"""
_LONGEST = 128
_MAX_VALUES = 256
_UNREADABLE = re.compile(r"[^\w.@+:/\- ]")


class Grant(Struct, frozen=True, forbid_unknown_fields=True):
    """The rights that a group grants, on the targets of some patterns; None: on every target."""

    scopes: _Scopes
    targets: _Patterns | None = None


class ClaimNames(Struct, frozen=True, forbid_unknown_fields=True):
    """The claims of an ID token that tell who somebody is; a dot leads into an object."""

    name: _Text = "preferred_username"
    email: _Text = "email"
    groups: _Text = "groups"


class SessionLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """The ends of sessions: without a request for so long, and at the latest after signing in."""

    idle: str = "1h"
    longest: str = "12h"

    @property
    def idle_s(self) -> float:
        """Return the seconds without a request after which a session ends."""
        return parse_duration(self.idle).total_seconds()

    @property
    def longest_s(self) -> float:
        """Return the seconds after which a session ends."""
        return parse_duration(self.longest).total_seconds()


class PeopleSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The issuer at which people sign in.

    Attributes:
        issuer: its URL, exactly as its discovery document and its tokens spell it.
        name: on the sign-in page; empty: the host of the issuer.
        client_secret_file: file with the secret of ``client_id``; without one, the client is
            public. ``client_secret_env``: a variable instead.
        command_line: id of the public client of ``compatgate login``; None: no such sign-in.
        userinfo: read claims that the ID token lacks from the issuer's userinfo endpoint.
        groups: scopes by group, exactly as the claim spells it.
    """

    issuer: _Text
    client_id: _Text
    name: str = ""
    client_secret_file: _Text | None = None
    client_secret_env: _Text | None = None
    command_line: _Text | None = None
    scopes: list[_Text] = field(default_factory=lambda: ["openid", "profile", "email"])
    userinfo: bool = False
    claims: ClaimNames = ClaimNames()
    groups: dict[_Text, _Scopes | Grant] = {}
    default: list[ScopeName] = []
    sessions: SessionLimits = SessionLimits()

    @property
    def label(self) -> str:
        """Return the name for the sign-in page."""
        return self.name or urlsplit(self.issuer).hostname or self.issuer

    def grant(self, group: str) -> Grant:
        """Return what a named group allows."""
        given = self.groups[group]
        return given if isinstance(given, Grant) else Grant(given)


class JobRule(Struct, frozen=True, forbid_unknown_fields=True):
    """The rights of jobs with certain claims.

    ``claims``: globs by claim, all of which must match; of a list, one must. ``*`` stops at ``/``,
    ``**`` does not.
    """

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$")]
    claims: Annotated[dict[str, _Text | bool | int | _Patterns], Meta(min_length=1)]
    scopes: _Scopes
    targets: _Patterns | None = None


class JobIssuer(Struct, frozen=True, forbid_unknown_fields=True):
    """An issuer of job tokens, by the URL that they spell; the first rule that matches decides."""

    issuer: _Text
    audience: _Text
    rules: Annotated[list[JobRule], Meta(min_length=1)]


class IdentitySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    people: PeopleSettings | None = None
    jobs: list[JobIssuer] = []

    @property
    def is_empty(self) -> bool:
        """Return whether no issuer is trusted."""
        return self.people is None and not self.jobs


def url_problem(url: str) -> str:
    """Return why a URL is not one of an issuer; empty: it is one.

    HTTPS is required, except on this machine.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("https", "http") or not host or not url.isprintable() or " " in url:
        return "is not a URL"
    if parts.username is not None or parts.query or parts.fragment:
        return "has a user, a query or a fragment"
    if parts.scheme == "https" or host == "localhost":
        return ""
    try:
        return "" if ipaddress.ip_address(host).is_loopback else "must be https"
    except ValueError:
        return "must be https"


def patterns(given: str | bool | int | Iterable[str]) -> list[str]:
    """Return the globs of a claim of a rule."""
    if isinstance(given, bool):
        return [str(given).lower()]
    return [str(given)] if isinstance(given, str | int) else list(given)


def client_secret(people: PeopleSettings) -> str:
    """Read the secret of the pages' client; empty: the client is public."""
    if people.client_secret_env:
        place, name = "client_secret_env", people.client_secret_env
        secret = os.environ.get(name, "")
    elif people.client_secret_file:
        place, name = "client_secret_file", people.client_secret_file
        try:
            secret = Path(name).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise BadInput(f"cannot be read: {reason}", field=place, value=name) from None
    else:
        return ""
    if not secret:
        hint = "the issuer shows the secret only once"
        raise BadInput("holds no secret", field=place, value=name, hint=hint)
    return secret


class Access(Struct, frozen=True):
    """The rights of a person or job, on the targets of some patterns; None: on every target."""

    scopes: frozenset[str]
    targets: tuple[str, ...] | None = None


class Person(Struct, frozen=True):
    """A person as the issuer describes them, by a stable id, with the groups of the settings."""

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
    shown = []
    for name in mismatches:
        value = claim(claims, name)
        given = "missing" if value is None else repr(_plain(value))[: _LONGEST * 2]
        shown.append(f"{name} is {given}")
    what = f"no rule of this gate matches the job: {'; '.join(shown)}"
    hint = "the operator's file for --oidc lists the rules"
    raise Forbidden(what, field=nearest[0], hint=hint)


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
