"""Read and check the file of ``serve --oidc``, and report every mistake at once."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

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
from compatgate.errors import BadInput, ManyProblems, locate_error, quote_error
from compatgate.kit.principal import SCOPES, check_patterns
from compatgate.resources import install_hint
from compatgate.service.access.settings import (
    OWNERS,
    ClaimNames,
    Grant,
    IdentitySettings,
    JobIssuer,
    JobRule,
    PeopleSettings,
    SessionLimits,
    client_secret,
    patterns,
    url_problem,
)

_JOB_SCOPES = tuple(scope for scope in SCOPES if scope != "admin")
_SHORTEST_S, _LONGEST_S = 60, 31 * 86400
_OPEN_OWNER = re.compile(r"(repo:)?(project_path:)?[^/:]*[*?]")
"""A glob that leaves the owner open: its first part has a wildcard."""


def read_settings(path: str, option: str = "--oidc") -> IdentitySettings:
    """Read a file, YAML or TOML, and check it."""
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
    if not all(importlib.util.find_spec(name) for name in ("authlib", "httpx2", "joserfc")):
        what = "sign-in needs Authlib, which is not installed"
        raise BadInput(what, field=option, hint=install_hint("oidc"))
    return settings


def _parse(source: Source, problems: Problems) -> RawDocument | None:
    if source.file.endswith(".toml"):
        try:
            return RawDocument(source.file, tomllib.loads(source.text))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            problems.add(DocumentProblem(f"not valid TOML: {quote_error(error)}", file=source.file))
            return None
    documents = list(read_nodes(source, problems))
    if len(documents) > 1:
        problems.add(documents[1].problem((), "the file has a second document", hint="write one"))
    return documents[0] if documents and not len(problems) else None


_PLACE = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def _shape_problem(raw: RawDocument, error: msgspec.ValidationError) -> DocumentProblem:
    """Say which field has the wrong shape, and which names or values would be right."""
    at, text = locate_error(error)
    place = tuple(
        int(index) if index.isdigit() else (key or index) for key, index in _PLACE.findall(at)
    )
    hint = ""
    if "unknown field" in text:
        known = _fields_at(place[:-1])
        return raw.problem(place, "unknown key", hint=suggest_name(str(place[-1]), known))
    if "enum value" in text:
        hint = f"one of {', '.join(SCOPES)}"
    return raw.problem(place, f"has the wrong form: {text}", hint=hint)


def _fields_at(place: FieldPath) -> tuple[str, ...]:
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
        at: FieldPath = ("people", "sessions", name)
        length = getattr(people.sessions, name)
        try:
            seconds = parse_duration(length, field=format_path(at)).total_seconds()
        except BadInput as error:
            yield at, error.problem, length, error.hint
            continue
        if not _SHORTEST_S <= seconds <= _LONGEST_S:
            yield at, "is out of range", length, "1m to 31d"


def _url_mistakes(place: FieldPath, url: str) -> Iterator[Mistake]:
    if problem := url_problem(url):
        yield place, problem, url, "like https://id.example/realms/platform"


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
    elif all(any(map(_OPEN_OWNER.match, patterns(rule.claims[claim]))) for claim in stated):
        hint = "write the owner in full, like acme/*"
        open_claims = {claim: rule.claims[claim] for claim in stated}
        yield (*place, "claims"), "match jobs of other owners", open_claims, hint
