"""Derive the methods of the client from declared operations: signatures and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import update_wrapper
from importlib import import_module
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

from msgspec import Struct, to_builtins

from compatgate.client.request import EVENTS, JSON, LONG_S, YAML, Items, Request, entity_tag
from compatgate.kit.http.schemas import Page
from compatgate.kit.operations import Declared

if TYPE_CHECKING:
    from compatgate.client.clients import Client

_SILENCE_S = 60.0
"""Timeout of a log stream in seconds; the gate sends data at least every ten seconds."""
P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")
R = TypeVar("R")
Found = TypeVar("Found")


class Operation(Generic[P, R, Found]):
    """A method of a client; ``Client.show_run.request`` makes its request without sending it."""

    def __init__(self, request: Callable[P, R], how: str) -> None:
        self.request = request
        self._how = how
        self.__doc__ = request.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Found]: ...
    def __get__(self, client: Client | None, owner: type) -> Any:
        if client is None:
            return self
        how, make = getattr(client, self._how), self.request

        def call(*args: P.args, **named: P.kwargs) -> Any:
            return how(make(*args, **named))

        return update_wrapper(call, make)


def single(request: Callable[P, Request[A]]) -> Operation[P, Request[A], A]:
    """Make an operation with one answer."""
    return Operation(request, "send")


def listing(request: Callable[P, Request[Page[T]]]) -> Operation[P, Request[Page[T]], Items[T]]:
    """Make an operation that returns a list in pages."""
    return Operation(request, "items")


def stream(request: Callable[P, Request[str]]) -> Operation[P, Request[str], Iterator[str]]:
    """Make an operation that streams text by line."""
    return Operation(request, "lines")


_FORMS: dict[str, Callable[..., Any]] = {"one": single, "pages": listing, "lines": stream}


def make_operation(declared: Declared) -> Any:
    """Return an operation, to be an attribute of the client's class."""
    signature = Signature(  # those of the path and required members of the body by place
        [
            Parameter(
                argument.name,
                Parameter.POSITIONAL_OR_KEYWORD if argument.positional else Parameter.KEYWORD_ONLY,
                default=Parameter.empty if argument.required else None,
                annotation=argument.annotation,
            )
            for argument in sorted(declared.arguments, key=lambda one: not one.positional)
        ]
    )

    def request(*args: Any, **named: Any) -> Request[Any]:
        return make_request(declared, signature.bind(*args, **named).arguments)

    request.__module__, request.__name__ = "compatgate.client.operations", declared.name
    request.__qualname__ = f"Operations.{declared.name}"
    listed = [f"    {one.name}: {one.about}" for one in declared.arguments if one.about]
    request.__doc__ = "\n".join([declared.about, *(["", "Args:", *listed] if listed else [])])
    request.__signature__ = signature  # type: ignore[attr-defined]
    return _FORMS[declared.form](request)


def make_request(declared: Declared, values: Mapping[str, Any]) -> Request[Any]:
    """Return the request of an operation; an argument that is None is not sent."""
    path: dict[str, Any] = {}
    query: dict[str, Any] = {**declared.fixed}
    members: dict[str, Any] = {}
    whole = if_match = None
    for argument in declared.arguments:
        value = values.get(argument.name)
        match argument.place:
            case "path":
                path[argument.key] = value
            case "query":
                query[argument.key] = value
            case "body" if value is not None:
                members[argument.key] = _plain(value)
            case "whole":
                whole = value
            case "header":
                if_match = entity_tag(value)
    answer: Any = str if declared.answer == "text" else Any
    accept = "*/*" if declared.answer == "text" else JSON
    module, colon, name = declared.answer.partition(":")
    if colon:
        answer = getattr(import_module(module), name)
    if declared.form == "pages":
        query |= {"limit": None, "cursor": None}
        answer = Page[answer] if colon else answer
    elif declared.form == "lines":
        accept = EVENTS if values.get("follow") else "text/plain"
    return Request(
        method=declared.method,
        path=declared.path,
        answer=answer,
        values=path,
        query=query,
        body=_body(declared, whole, members),
        media=YAML if isinstance(whole, str) else JSON,
        accept=accept,
        if_match=if_match,
        repeatable=declared.repeatable or bool(values.get("dry_run")),
        patience=_SILENCE_S if declared.form == "lines" else LONG_S if declared.slow else None,
        refusal=declared.refusal,
    )


def _body(declared: Declared, whole: Any, members: dict[str, Any]) -> Any:
    """Return the body: the whole one, with the reason of a change; or its members."""
    if whole is None:
        takes = any(argument.place in ("body", "whole") for argument in declared.arguments)
        return members if takes else None
    if "reason" in members:
        plain = to_builtins(whole) if isinstance(whole, Struct) else whole
        return {name: value for name, value in {**plain, **members}.items() if value is not None}
    return list(whole) if declared.documents and not isinstance(whole, str) else whole


def _plain(value: Any) -> Any:
    """Return structs as objects without what they leave open; null in an object means itself."""
    if isinstance(value, Struct):
        return {name: item for name, item in to_builtins(value).items() if item is not None}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value
