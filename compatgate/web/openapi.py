"""Describe the API in OpenAPI 3.1, from the declarations that routing uses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from inspect import cleandoc
from textwrap import dedent
from typing import Any, get_args

import msgspec
from msgspec import Struct, structs

from compatgate import version
from compatgate.kit.http.replies import PROBLEM_MEDIA as PROBLEM
from compatgate.kit.http.requests import LONGEST_REASON, REASON_HEADER, parameters
from compatgate.kit.http.route import OPEN_SCOPES, Route, TargetLimit
from compatgate.kit.http.schemas import Page, Problem
from compatgate.kit.http.signatures import HEADER

_ABOUT = """\
Decides whether a GPU stack (driver, CUDA, cuDNN, NCCL, framework, GPU code) may run on a target.

Errors are problem details (RFC 9457): `field` names the wrong part of the request, `hint` says what
to do. Lists come in pages: `next`, or the `Link` header, gives the next page. Answers to GET have
an `ETag`. Send it as `If-None-Match` to get 304 if nothing changed, or as `If-Match` with a change.
Every change needs a reason.
"""
TOKEN = "token"  # noqa: S105 - the name of the security scheme
SIGNATURE, PASSWORD = "signature", "password"
_SINGULAR = {"work": "host", "entries": "entry"}
_PATH = {
    "name": "name of the {tag}",
    "id": "id",
    "run": "id of the run",
    "attempt": "number of the attempt, as leased",
    "number": "number of the revision",
    "table": "table of facts, as listed",
    "key": "key of the row, as listed",
    "target": "name of the target",
    "entry": "name of the entry",
    "stack": "components, like cuda=12.4,torch=2.4.1+cu124,arch=sm_80+compute_90",
}
_PART = "changes of targets that weaken nothing"
_LIMITS: dict[TargetLimit, str] = {
    "checked": "A token that is limited to targets reaches only these targets.",
    "refused": "A token that is limited to targets is refused.",
    "free": "",
}
_MODELS = ("compatgate.core.", "compatgate.canary.")
"""Packages whose structs answers carry as they are; in questions their defaults may be omitted.

A body that extends such a struct states ``sent_whole``.
"""
_REF = "#/components/schemas/{name}"
_ATTRIBUTES = "Attributes:\n"
_ATTRIBUTE = re.compile(r"^(\w+): (.+(?:\n +.+)*)", re.MULTILINE)


def describe_api(routes: Sequence[Route], tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the OpenAPI document of routes."""
    schemas = Schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = paths.setdefault(route.prefix + route.template, {})
        path[route.method.lower()] = describe_route(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "compatgate",
            "version": version(),
            "summary": "May this GPU stack run on this target?",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in tags.items()],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                TOKEN: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "made by `compatgate token create`; holds scopes",
                },
                SIGNATURE: {
                    "type": "apiKey",
                    "in": "header",
                    "name": HEADER,
                    "description": "`t=SECONDS,v1=HEX`: HMAC-SHA256 with a key of"
                    " `serve --hook-secret` over `v1:SECONDS:METHOD PATH`, a newline and the body",
                },
                PASSWORD: {
                    "type": "http",
                    "scheme": "basic",
                    "description": "a token as the password, with any user name: for tools that can"
                    " send a URL but no header",
                },
            },
        },
    }


def describe_route(route: Route, schemas: Schemas) -> dict[str, Any]:
    """Return the operation."""
    needs = f"Needs the scope `{route.scope}`." if route.scope else "No token needed."
    if route.part:
        needs = f"Needs the scope `{route.scope}`; `{route.part}` is enough for {_PART}."
    said = [route.description, _LIMITS[route.targets] if route.scope != "admin" else "", needs]
    tokens: list[dict[str, list[str]]] = [{TOKEN: [scope]} for scope in route.scopes]
    anybody: list[dict[str, list[str]]] = [{}] if route.scope in OPEN_SCOPES else []
    others: list[dict[str, list[str]]] = [{SIGNATURE: []}, {PASSWORD: []}] if route.signed else []
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "description": " ".join(text for text in said if text),
        "parameters": [*_path(route), *_query(route), *_headers(route)],
        "responses": _responses(route, schemas),
        "security": [*anybody, *tokens, *others] if route.scope else [],
    }
    if route.body:
        examples = {name: {"value": value} for name, value in route.body.examples.items()}
        main, *more = route.body.media
        schema = schemas.of(route.body.model)
        content: dict[str, Any] = {main: {"schema": schema, "examples": examples}}
        content |= {media: {} for media in more}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _path(route: Route) -> list[dict[str, Any]]:
    tag = _SINGULAR.get(route.tag, route.tag.removesuffix("s"))
    text = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH[name].format(tag=tag),
            "schema": text if most is None else {"type": "integer", "minimum": 0, "maximum": most},
        }
        for name, most in route.parameters
    ]


def _query(route: Route) -> list[dict[str, Any]]:
    found = []
    for name, parameter in parameters(route.query).items():  # type: ignore[arg-type]
        schema: dict[str, Any] = _json_default(msgspec.json.schema(parameter.kind))
        if parameter.is_time:
            forms = [{"type": "string", "format": name} for name in ("date-time", "date")]
            schema = {"anyOf": forms, "description": schema.get("description", "")}
        described = {"name": name, "in": "query", "schema": schema}
        if text := schema.pop("description", None):
            described["description"] = text
        found.append(described)
    return found


def _headers(route: Route) -> list[dict[str, Any]]:
    text: dict[str, Any] = {"type": "string"}
    headers = {}
    if route.reason:
        headers[REASON_HEADER] = (
            "Reason of a change, required; or send it as `reason`.",
            {**text, "minLength": 1, "maxLength": LONGEST_REASON},
        )
    if route.matches:
        headers["If-Match"] = "Change only the version with this entity tag.", text
    if route.returns.etag and route.method == "GET":
        headers["If-None-Match"] = "Answer 304 if the entity tag is unchanged.", text
    return [
        {"name": name, "in": "header", "description": description, "schema": schema}
        for name, (description, schema) in headers.items()
    ]


def _responses(route: Route, schemas: Schemas) -> dict[str, Any]:
    returns = route.returns
    main, *others = returns.media
    answer: dict[str, Any] = {"description": returns.description}
    answer["content"] = {main: {"schema": schemas.of(answer_type(route))}}
    answer["content"] |= {media: {} for media in others}
    text = {"schema": {"type": "string"}}
    headers: dict[str, Any] = {}
    if returns.etag:
        headers["ETag"] = {"description": "Entity tag", "required": True, **text}
    if returns.paged:
        headers["Link"] = {"description": 'The next page, `rel="next"`', **text}
    if returns.status == HTTPStatus.CREATED and returns.etag:
        headers["Location"] = {"description": "URL of the created object", "required": True, **text}
    if headers:
        answer["headers"] = headers
    responses = {str(returns.status): answer}
    if returns.etag and route.method == "GET":
        responses["304"] = {"description": "The client's version is current"}
    statuses = {400, 401, 429, 503, *route.errors}
    statuses |= {403} if route.scope is not None else set()
    statuses |= {404} if route.parameters else set()
    statuses |= {413, 415} if route.body else set()
    statuses |= {412} if route.matches else set()
    responses |= {str(status): _problem(status, schemas, route) for status in statuses}
    return dict(sorted(responses.items()))


def _problem(status: int, schemas: Schemas, route: Route) -> dict[str, Any]:
    content = {route.refusal_media: route.refusal} if route.refusal else {PROBLEM: Problem}
    answer: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {media: {"schema": schemas.of(kind)} for media, kind in content.items()},
    }
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        answer["headers"] = {"Retry-After": {"schema": {"type": "string"}, "required": True}}
    if status in (401, 403):
        answer["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}, "required": True}}
    return answer


class Schemas:
    """The schemas of every type that routes read or answer."""

    def __init__(self, routes: Iterable[Route]) -> None:
        types: list[Any] = [Problem]
        routes = [*routes]
        for route in routes:
            types.append(answer_type(route))
            types += [route.body.model] if route.body else []
        self._types = list({repr(kind): kind for kind in types}.values())
        made = msgspec.json.schema_components(self._types, ref_template=_REF)
        schemas, components = _json_default(made)
        bodies = structs_of(route.body.model for route in routes if route.body)
        for kind in structs_of(self._types) - bodies:
            if kind.__module__.startswith(_MODELS) or getattr(kind, "sent_whole", False):
                schema = components[kind.__name__]
                schema["required"] = [*schema["properties"]]
                schema["additionalProperties"] = False
                for field in schema["properties"].values():
                    field.pop("default", None)
        self._schemas = schemas
        counts = Counter(map(_plain_name, components))
        if doubled := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"two structs have the name {doubled[0]} in the API: rename one")
        self.components = {
            _plain_name(name): _describe_fields(_rename_schema(body))
            for name, body in components.items()
        }

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type: for most a reference."""
        schema: dict[str, Any] = _rename_schema(self._schemas[self._types.index(kind)])
        return schema


def structs_of(kinds: Iterable[Any]) -> set[type[Struct]]:
    """Return the structs that types consist of, at any depth."""
    found: set[type[Struct]] = set()
    waiting = [*kinds]
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, Struct) and kind not in found:
            found.add(kind)
            waiting += [field.type for field in structs.fields(kind)]
    return found


def answer_type(route: Route) -> Any:
    """Return the type of a route's answer, or a page of that type for lists."""
    model: Any = route.returns.model
    page: Any = Page
    return page[model] if route.returns.paged else model


def _json_default(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _plain_name(name: str) -> str:
    """Shorten a name: ``Page_TargetBody_`` to ``TargetPage``, ``TargetBody`` to ``Target``."""
    if name.startswith("Page_"):
        return f"{name.removeprefix('Page_').rstrip('_').removesuffix('Body')}Page"
    return name.removesuffix("Body")


def _describe_fields(schema: dict[str, Any]) -> dict[str, Any]:
    """Move the attributes that a docstring lists to the fields of the schema."""
    if not (text := cleandoc(schema.get("description", ""))):
        return schema
    about, _, listed = text.partition(_ATTRIBUTES)
    fields = {name: dict(field) for name, field in schema.get("properties", {}).items()}
    for attribute, said in _ATTRIBUTE.findall(dedent(listed)):
        first, *rest = attribute.split("_")
        name = attribute if attribute in fields else first + "".join(map(str.title, rest))
        words = " ".join(said.split()).replace("None:", "null:").replace("``", "`")
        fields[name].setdefault("description", words.removesuffix("."))
    about = about.strip().replace("``", "`")
    return schema | {"description": about} | ({"properties": fields} if fields else {})


def _rename_schema(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_rename_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    prefix = _REF.format(name="")
    return {
        key: prefix + _plain_name(value.removeprefix(prefix))
        if key == "$ref"
        else _rename_schema(value)
        for key, value in schema.items()
    }
