"""Read the file of ``serve --oidc``: who vouches for people and for CI jobs, and what they may do.

The file names one issuer for people, whose groups have scopes, and any number of issuers for jobs,
whose claims have scopes by rules. Scopes are read from the file at each request: a group that the
file no longer names opens nothing after a restart, also for people who are signed in.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field

from compatgate.documents.quantities import parse_duration
from compatgate.documents.sources import (
    DocumentProblem,
    FieldPath,
    Problems,
    Source,
    format_path,
    read_paths,
    suggest_name,
)
from compatgate.documents.text import RawDocument, read_nodes
from compatgate.errors import BadInput, ManyProblems
from compatgate.service.tokens.principal import check_patterns
from compatgate.service.tokens.schemas import SCOPES, ScopeName

_Text = Annotated[str, Meta(min_length=1, max_length=512)]
_Scopes = Annotated[list[ScopeName], Meta(min_length=1)]
_Patterns = Annotated[list[_Text], Meta(min_length=1)]
_JOB_SCOPES = tuple(scope for scope in SCOPES if scope != "admin")
_SHORTEST_S, _LONGEST_S = 60, 31 * 86400
_LOCAL_HOSTS = ("localhost",)
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


class Grant(Struct, frozen=True, forbid_unknown_fields=True):
    """What a group or a rule allows.

    Attributes:
        scopes: as tokens have them.
        targets: patterns of the targets that the scopes are for; None: every target.
    """

    scopes: _Scopes
    targets: _Patterns | None = None


class ClaimNames(Struct, frozen=True, forbid_unknown_fields=True):
    """The claims of an ID token that tell who somebody is; a dot leads into an object."""

    name: _Text = "preferred_username"
    email: _Text = "email"
    groups: _Text = "groups"


class SessionLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """The ends of sessions.

    Attributes:
        idle: without a request for so long.
        longest: after signing in, however much it is used.
    """

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
        client_id: of the pages.
        name: on the sign-in page; empty: the host of the issuer.
        client_secret_file: file with the secret of ``client_id``; without one, the client is
            public. ``client_secret_env``: a variable instead.
        command_line: id of the public client of ``compatgate login``; None: no such sign-in.
        scopes: of the authorization request.
        userinfo: read claims that the ID token lacks from the issuer's userinfo endpoint.
        groups: scopes by group, exactly as the claim spells it.
        default: scopes of everybody who signs in.
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
    """What jobs with certain claims may do.

    Attributes:
        name: in the logs, with the job's subject.
        claims: globs by claim, all of which must match; of a list, one must. ``*`` stops at ``/``,
            ``**`` does not.
    """

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$")]
    claims: Annotated[dict[str, _Text | bool | int | _Patterns], Meta(min_length=1)]
    scopes: _Scopes
    targets: _Patterns | None = None


class JobIssuer(Struct, frozen=True, forbid_unknown_fields=True):
    """An issuer of job tokens.

    Attributes:
        issuer: its URL, exactly as its tokens spell it.
        audience: the ``aud`` that tokens must have: the URL of this gate.
        rules: the first that matches decides.
    """

    issuer: _Text
    audience: _Text
    rules: Annotated[list[JobRule], Meta(min_length=1)]


class IdentitySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file.

    Attributes:
        people: None: people sign in with tokens alone.
        jobs: issuers that are trusted for jobs.
    """

    people: PeopleSettings | None = None
    jobs: list[JobIssuer] = []

    @property
    def is_empty(self) -> bool:
        """Return whether no issuer is trusted."""
        return self.people is None and not self.jobs


def read_settings(path: str, option: str = "--oidc") -> IdentitySettings:
    """Read a file, YAML or TOML, and check it.

    Raises:
        BadInput: the file cannot be read, or the extra ``oidc`` is not installed.
        ManyProblems: every mistake, with its line in YAML, field, value and what would be right.
    """
    (source, *more) = read_paths([path])
    if more:
        raise BadInput("is a folder", field=option, value=path, hint="name one file")
    problems = Problems()
    raw = _parse(source, problems)
    settings = None
    if raw is not None:
        try:
            settings = msgspec.convert(raw.value, IdentitySettings)
        except msgspec.ValidationError as error:
            problems.add(_shape_problem(raw, error))
        else:
            for place, what, value, hint in _mistakes(settings):
                shown = f"{value!r} {what}" if isinstance(value, str) else what
                problems.add(raw.problem(place, shown, value=value, hint=hint))
    if settings is None or len(problems):
        raise ManyProblems(f"{path} cannot be used", list(problems))
    _require_extra(option)
    return settings


def _parse(source: Source, problems: Problems) -> RawDocument | None:
    if source.file.endswith(".toml"):
        try:
            return RawDocument(source.file, tomllib.loads(source.text))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            problems.add(DocumentProblem(f"not valid TOML: {error}", file=source.file))
            return None
    documents = list(read_nodes(source, problems))
    if len(documents) > 1:
        problems.add(documents[1].problem((), "the file has a second document", hint="write one"))
    return documents[0] if documents and not len(problems) else None


_PLACE = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def _shape_problem(raw: RawDocument, error: msgspec.ValidationError) -> DocumentProblem:
    """Say which field has the wrong shape, and which names or values would be right."""
    text, _, at = str(error).partition(" - at `$")
    place = tuple(
        int(index) if index.isdigit() else (key or index)
        for key, index in _PLACE.findall(at.rstrip("`"))
        if index != "..."
    )
    hint = ""
    if unknown := re.search(r"unknown field `(.*)`", text):
        known = _fields_at(place)
        place = (*place, unknown[1])
        text, hint = "unknown key", suggest_name(unknown[1], known)
    elif "enum value" in text:
        hint = f"one of {', '.join(SCOPES)}"
    return raw.problem(place, text.replace("`", "'"), hint=hint)


def _fields_at(place: FieldPath) -> tuple[str, ...]:
    """Return the keys that an object may have."""
    names = [step for step in place if isinstance(step, str)]
    kinds: dict[str, type[Struct]] = {
        "people": PeopleSettings,
        "people.claims": ClaimNames,
        "people.sessions": SessionLimits,
        "jobs": JobIssuer,
        "jobs.rules": JobRule,
    }
    if names[:2] == ["people", "groups"]:
        return Grant.__struct_fields__
    return kinds.get(".".join(names), IdentitySettings).__struct_fields__


Mistake = tuple[FieldPath, str, object, str]


def _mistakes(settings: IdentitySettings) -> Iterator[Mistake]:
    if settings.is_empty:
        yield (), "names no issuer", None, "write people, jobs, or both"
    if settings.people:
        yield from _people_mistakes(settings.people)
    issuers = [settings.people.issuer] if settings.people else []
    for index, jobs in enumerate(settings.jobs):
        place: FieldPath = ("jobs", index)
        yield from _url_mistakes((*place, "issuer"), jobs.issuer)
        if jobs.issuer in issuers:
            yield (*place, "issuer"), "is named twice", jobs.issuer, "put its rules together"
        issuers.append(jobs.issuer)
        for number, rule in enumerate(jobs.rules):
            yield from _rule_mistakes((*place, "rules", number), rule, jobs.issuer)


def _people_mistakes(people: PeopleSettings) -> Iterator[Mistake]:
    yield from _url_mistakes(("people", "issuer"), people.issuer)
    if people.client_secret_file and people.client_secret_env:
        hint = "name the file or the variable"
        yield ("people", "client_secret_env"), "a second source of the secret", None, hint
    try:
        client_secret(people)
    except BadInput as error:
        yield ("people", *(error.field or "").split(".")), error.problem, error.value, error.hint
    if "openid" not in people.scopes:
        yield ("people", "scopes"), "lacks openid", people.scopes, "add openid"
    if not people.groups and not people.default:
        hint = "name groups, or default scopes"
        yield ("people", "groups"), "nobody would have a scope", None, hint
    for group in people.groups:
        grant = people.grant(group)
        place = ("people", "groups", group)
        yield from _target_mistakes(place, grant.targets)
        if grant.targets is not None and "admin" in grant.scopes:
            what = "the scope admin cannot be limited to targets"
            yield (*place, "scopes"), what, grant.scopes, "leave out admin, or the targets"
    for name in ("idle", "longest"):
        yield from _duration_mistakes(("people", "sessions", name), getattr(people.sessions, name))


def _duration_mistakes(place: FieldPath, text: str) -> Iterator[Mistake]:
    try:
        seconds = parse_duration(text, field=format_path(place)).total_seconds()
    except BadInput as error:
        yield place, error.problem, text, error.hint
        return
    if not _SHORTEST_S <= seconds <= _LONGEST_S:
        yield place, "is out of range", text, "1m to 31d"


def _url_mistakes(place: FieldPath, url: str) -> Iterator[Mistake]:
    if problem := url_problem(url):
        yield place, problem, url, "like https://id.example/realms/platform"


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
    if parts.scheme == "http" and not _is_local(host):
        return "must be https"
    return ""


def _is_local(host: str) -> bool:
    if host in _LOCAL_HOSTS:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _target_mistakes(place: FieldPath, targets: list[str] | None) -> Iterator[Mistake]:
    try:
        check_patterns(targets or ["*"])
    except BadInput as error:
        yield (*place, "targets"), error.problem, error.value, error.hint


def _rule_mistakes(place: FieldPath, rule: JobRule, issuer: str) -> Iterator[Mistake]:
    yield from _target_mistakes(place, rule.targets)
    if "admin" in rule.scopes:
        what = f"jobs cannot have admin; they may have {', '.join(_JOB_SCOPES)}"
        yield (*place, "scopes"), what, rule.scopes, ""
    owners = OWNERS.get(urlsplit(issuer).hostname or "")
    if owners is None:
        return
    stated = [claim for claim in owners if claim in rule.claims]
    if not stated:
        hint = f"add one of {', '.join(owners)}"
        yield (*place, "claims"), "do not say whose jobs: this issuer serves everybody", None, hint
    elif all(any(map(_is_open, patterns(rule.claims[claim]))) for claim in stated):
        hint = "write the owner in full, like acme/*"
        open_claims = {claim: rule.claims[claim] for claim in stated}
        yield (*place, "claims"), "match jobs of other owners", open_claims, hint


def _is_open(pattern: str) -> bool:
    """Return whether a glob leaves the owner open: its first part has a wildcard."""
    owner = re.split(r"[/:]", pattern.removeprefix("repo:").removeprefix("project_path:"))[0]
    return bool(set(owner) & set("*?"))


def patterns(given: str | bool | int | Iterable[str]) -> list[str]:
    """Return the globs of a claim of a rule."""
    if isinstance(given, bool):
        return [str(given).lower()]
    return [str(given)] if isinstance(given, str | int) else list(given)


def client_secret(people: PeopleSettings) -> str:
    """Read the secret of the pages' client; empty: the client is public.

    Raises:
        BadInput: the file cannot be read, or the file or the variable is empty.
    """
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
        raise BadInput("holds no secret", field=place, value=name, hint="the issuer shows it once")
    return secret


def _require_extra(option: str) -> None:
    from importlib.util import find_spec

    if not all(find_spec(name) for name in ("authlib", "httpx2", "joserfc")):
        what = "sign-in needs Authlib, which is not installed"
        raise BadInput(what, field=option, hint="pip install 'compatgate[oidc]'")
