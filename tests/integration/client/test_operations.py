"""The client and the OpenAPI document of a running service describe the same operations."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from serving import Server

from compatgate.client import Client
from compatgate.client.operations import Operations
from compatgate.client.request import Operation, Request
from compatgate.web.openapi import Schemas

Described = tuple[str, str, dict[str, Any]]
METHODS = {name: found for name, found in vars(Operations).items() if isinstance(found, Operation)}


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
    assert METHODS.keys() == described.keys(), "run scripts/operations.py"


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
    assert (request.body is not None) == ("requestBody" in operation)


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_answer_is_that_of_the_operation(
    name: str, described: dict[str, Described], document: dict[str, Any]
) -> None:
    operation, request = described[name][2], asked(name)
    (answer,) = [r for s, r in operation["responses"].items() if s.startswith("2")]
    media, content = next(iter(answer["content"].items()))
    assert ("json" not in media) == (request.answer is str)
    if request.answer is Any:
        return  # plain JSON
    returns = SimpleNamespace(model=request.answer, paged=False)
    schemas = Schemas([SimpleNamespace(returns=returns, body=None)])  # type: ignore[list-item]
    assert schemas.of(request.answer) == content["schema"]
    known = document["components"]["schemas"]
    assert {name: known.get(name) for name in schemas.components} == schemas.components


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_does(name: str) -> None:
    method = getattr(Client("http://127.0.0.1:1"), name)
    assert method.__name__ == name
    assert method.__doc__.strip()


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
