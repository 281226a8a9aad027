"""Decode responses: to types if the request succeeded, to errors otherwise.

Unknown fields of newer gates are ignored. Errors come as problem+json (RFC 9457) and become the
same objects that the gate raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar

import httpx
import msgspec
from msgspec import Struct, inspect

from compatgate import errors
from compatgate.client.request import Request
from compatgate.documents.sources import DocumentProblem
from compatgate.errors import (
    BadInput,
    CompatgateError,
    ManyProblems,
    RequestTooLarge,
    Unavailable,
    quote_error,
)
from compatgate.strict_json import DECODE_ERRORS

A = TypeVar("A")
LARGEST = 256 * 1024 * 1024
"""Maximum bytes of an answer; a matrix of 100,000 entries has about 40 MB."""
NOT_MODIFIED = 304
_decoder = lru_cache(maxsize=256)(msgspec.json.Decoder)
_KINDS: list[type[CompatgateError]] = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, CompatgateError) and kind.status < 500
]
_BY_SLUG = {kind.slug: kind for kind in _KINDS if kind is not ManyProblems}
_BY_STATUS: dict[int, type[CompatgateError]] = {
    **{kind.status: kind for kind in _BY_SLUG.values() if kind.status < 500},
    **dict.fromkeys((408, 425, 429), Unavailable),
}
"""Errors of statuses without a problem type; 408, 425 and 429 mean "try later"."""
_NO_TOKEN = "give an access token, or set COMPATGATE_TOKEN"  # noqa: S105 - a sentence


class Answer(Struct, Generic[A], frozen=True):
    """An answer with its HTTP metadata; the value is None if unchanged (``not_modified``).

    ``request_id`` is the id of the request in the gate's log.
    """

    value: A
    etag: str | None
    request_id: str | None
    not_modified: bool = False


def check_size(body: bytearray, base: str) -> None:
    """Refuse a body that exceeds the limit."""
    if len(body) > LARGEST:
        raise RequestTooLarge(f"the answer is larger than {LARGEST} bytes", field=base)


def read(
    request: Request[A], response: httpx.Response, body: bytes, base: str, *, token: bool
) -> Answer[A]:
    """Decode a response; ``token`` tells whether one was sent.

    Raises:
        CompatgateError: the gate refused the request, with its explanation.
        Unavailable: the gate has no answer, or the response is not a gate's.
    """
    status, headers = response.status_code, response.headers
    etag, number = headers.get("ETag"), headers.get("X-Request-Id")
    if status == NOT_MODIFIED:
        nothing: Any = None
        return Answer(nothing, etag, number, not_modified=True)
    if not response.is_success and not request.refusal:
        raise read_error(response, body, base, token=token)
    try:
        return Answer(_decode(request.answer, body), etag, number)
    except DECODE_ERRORS as error:
        if status >= 400:
            raise read_error(response, body, base, token=token) from None
        problem, hint = "the answer is not JSON; check that the URL is a gate's", ""
        if isinstance(error, msgspec.ValidationError):
            problem = f"the client does not understand the gate's answer: {quote_error(error)}"
            hint = "if the gate is newer than this client, update compatgate"
        raise Unavailable(problem, field=base, hint=hint) from None


def _decode(kind: Any, body: bytes) -> Any:
    """Decode a value of a type; ignore unknown fields of newer gates."""
    if kind in (bytes, str):
        return body if kind is bytes else body.decode()
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError:
        known = _known_part(inspect.type_info(kind), msgspec.json.decode(body))
        return msgspec.convert(known, kind, str_keys=True)


def _known_part(kind: inspect.Type, value: Any) -> Any:
    if isinstance(kind, inspect.Metadata):
        return _known_part(kind.type, value)
    if isinstance(kind, inspect.UnionType):
        fitting = [one for one in kind.types if _fits(one, value)]
        return _known_part(fitting[0], value) if len(fitting) == 1 else value
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        return {name: _known_part(fields[name], v) for name, v in value.items() if name in fields}
    if isinstance(kind, inspect.DictType) and isinstance(value, dict):
        return {name: _known_part(kind.value_type, v) for name, v in value.items()}
    if isinstance(kind, inspect.ListType | inspect.VarTupleType) and isinstance(value, list):
        return [_known_part(kind.item_type, item) for item in value]
    return value


def _fits(kind: inspect.Type, value: Any) -> bool:
    if isinstance(kind, inspect.Metadata):
        return _fits(kind.type, value)
    if isinstance(value, dict):
        return isinstance(kind, inspect.StructType | inspect.DictType)
    return isinstance(value, list) and isinstance(kind, inspect.ListType | inspect.VarTupleType)


_KINDS += [Unavailable, errors.RegistryTimeout, errors.DamagedContent]


def read_error(response: httpx.Response, body: bytes, base: str, *, token: bool) -> CompatgateError:
    """Return the error of a response: of its problem+json, else of its status."""
    status, headers = response.status_code, response.headers
    try:
        problem = msgspec.json.decode(body)
    except DECODE_ERRORS:
        problem = None
    if not isinstance(problem, dict) or not isinstance(problem.get("detail"), str):
        problem = None
    error = _stated_error(problem, status) if problem else _status_error(status, headers, base)
    error.status = status
    if status == errors.Unauthorized.status and not token:
        error.hint = _NO_TOKEN
    if number := headers.get("X-Request-Id"):
        error.add_note(f"request {number} in the gate's log")
    return error


def _stated_error(problem: dict[str, Any], status: int) -> CompatgateError:
    if several := problem.get("problems"):
        return ManyProblems(problem["detail"], [_nested_error(item) for item in several])
    slug = str(problem.get("type", "")).rpartition("/")[2]
    kind = _BY_SLUG.get(slug) or _kind(status)
    field, hint = _text(problem, "field"), _text(problem, "hint") or ""
    sentence = problem["detail"]
    if field:
        sentence = sentence.removeprefix(f"{field}: ")
    if hint:
        sentence = sentence.removesuffix(f" ({hint})")
    return kind(sentence, field=field, value=problem.get("value"), hint=hint)


def _status_error(status: int, headers: Mapping[str, str], base: str) -> CompatgateError:
    if 300 <= status < 400:
        where = headers.get("Location", "another place")
        hint = f"use the new address: {where}"
        return Unavailable(f"the gate answered {status} (redirection)", field=base, hint=hint)
    kind = _kind(status)
    what = f"the request was refused with status {status}; check that the URL is a gate's"
    if issubclass(kind, Unavailable):
        what = f"the gate answered {status}"
    return kind(what, field=base)


def _kind(status: int) -> type[CompatgateError]:
    return _BY_STATUS.get(status) or (BadInput if status < 500 else Unavailable)


def _nested_error(item: Any) -> CompatgateError:
    told: dict[str, Any] = item if isinstance(item, dict) else {}
    problem = DocumentProblem(
        _text(told, "problem") or "is malformed",
        file=_text(told, "file"),
        line=told.get("line"),
        document=_text(told, "document") or "",
        value=told.get("value"),
        hint=_text(told, "hint") or "",
    )
    problem.field = _text(told, "field")
    return problem


def _text(problem: dict[str, Any], name: str) -> str | None:
    found = problem.get(name)
    return found if isinstance(found, str) else None
