"""The client and the OpenAPI document of a running service describe the same operations."""

from __future__ import annotations

import ast
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from client_drafts import draft
from serving import Server

from compatgate.client import AsyncClient, Client
from compatgate.client.operations import Operations
from compatgate.client.request import Listing, Operation, Request, TextStream
from compatgate.service.web.openapi import Schemas

Described = tuple[str, str, dict[str, Any]]
METHODS = {
    name: found
    for name, found in vars(Operations).items()
    if isinstance(found, Operation | Listing | TextStream)
}
OWN = {"reason", "if_match"}
"""Arguments of changes, which are members of the body, query parameters or headers."""


@pytest.fixture(scope="module")
def document(server: Server, url: str) -> dict[str, Any]:
    """The description that the running service gives."""
    with Client(url, server.token) as client:
        return client.openapi()


@pytest.fixture(scope="module")
def described(document: dict[str, Any]) -> dict[str, Described]:
    """Method, path and operation by ``operationId``, as the running service describes them."""
    return {
        operation["operationId"]: (method.upper(), path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def test_every_operation_has_a_method_and_nothing_else_has(described: dict[str, Described]) -> None:
    missing = [draft(*described[name]) for name in sorted(described.keys() - METHODS.keys())]
    assert not missing, (
        "the client lacks methods for operations of the API. Add each to a file of "
        "compatgate/client/operations, and its line to Operations in that folder's __init__.py "
        "(CONTRIBUTING.md, Client):\n\n" + "\n".join(missing)
    )
    stale = sorted(METHODS.keys() - described.keys())
    assert not stale, f"methods without an operation: {', '.join(stale)}"


def test_methods_have_the_names_of_their_operations() -> None:
    assert {name: method.request.__name__ for name, method in METHODS.items()} == {
        name: name for name in METHODS
    }


@pytest.mark.parametrize("name", METHODS)
def test_a_method_asks_as_the_operation_is_described(
    name: str, described: dict[str, Described]
) -> None:
    method, path, operation = described[name]
    request = asked(name)
    assert (request.method, request.path) == (method, path)
    parameters = operation["parameters"]
    assert set(request.query) == {p["name"] for p in parameters if p["in"] == "query"}
    assert set(request.values) == {p["name"] for p in parameters if p["in"] == "path"}
    headers = {p["name"] for p in parameters if p["in"] == "header"}
    takes = inspect.signature(METHODS[name].request).parameters
    assert ("If-Match" in headers) == ("if_match" in takes)
    assert ("X-Compatgate-Reason" in headers) == ("reason" in takes)


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_types_are_those_of_the_operation(
    name: str, described: dict[str, Described], document: dict[str, Any]
) -> None:
    operation, request = described[name][2], asked(name)
    schemas = Schemas([_types(request)])  # type: ignore[list-item]
    (answer,) = [r for s, r in operation["responses"].items() if s.startswith("2")]
    media, content = next(iter(answer["content"].items()))
    assert ("json" not in media) == (request.answer is str)
    assert schemas.of(request.answer) == content["schema"]
    reads = operation.get("requestBody", {"content": {}})["content"]
    assert (request.reads is None) == (not reads)
    for body in reads.values():
        assert body.get("schema") in (None, schemas.of(request.reads))
    known = document["components"]["schemas"]
    assert {name: known.get(name) for name in schemas.components} == schemas.components


@pytest.mark.parametrize("name", METHODS)
def test_arguments_are_named_as_the_body_names_its_members(name: str) -> None:
    request, takes = asked(name), inspect.signature(METHODS[name].request).parameters
    if request.reads is None or isinstance(METHODS[name], Listing):
        return
    others = {*request.values, *request.query, *OWN}
    members = [taken for taken in takes if taken not in others]
    if len(members) == 1:
        return  # the body as a whole
    fields = set(getattr(request.reads, "__struct_fields__", ()))
    assert set(members) - {"question"} == fields


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_does_in_both_forms(name: str) -> None:
    for kind in (Client, AsyncClient):
        with_url: Any = kind("http://127.0.0.1:1")
        method = getattr(with_url, name)
        assert method.__name__ == name
        assert method.__doc__.strip()


def test_a_missing_method_is_drafted_for_whoever_adds_it(described: dict[str, Described]) -> None:
    drafts = {name: draft(*operation) for name, operation in described.items()}
    for drafted in drafts.values():
        ast.parse(drafted)
    assert drafts["list_hosts"].splitlines()[:3] == [
        "# GET /api/v1/hosts",
        "@Listing",
        "def list_hosts(*, gpu: str | None = None) -> Request[Page[Host]]:",
    ]


def asked(name: str) -> Request[Any]:
    """The request that a method makes of arguments of the right types."""
    takes = inspect.signature(METHODS[name].request).parameters.values()
    required = [taken for taken in takes if taken.default is inspect.Parameter.empty]
    given = {taken.name: _sample(str(taken.annotation)) for taken in required}
    request: Request[Any] = METHODS[name].request(**given)
    return request


def _sample(annotation: str) -> Any:
    if annotation.startswith("int"):
        return 7
    if annotation.startswith("Sequence"):
        return []
    return "x" if annotation.startswith("str") else {}


def _types(request: Request[Any]) -> SimpleNamespace:
    """What `Schemas` reads of a route."""
    body = SimpleNamespace(model=request.reads) if request.reads is not None else None
    return SimpleNamespace(returns=SimpleNamespace(model=request.answer, paged=False), body=body)
