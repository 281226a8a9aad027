"""Read what a request says: its body, its query parameters, and the reason of a change.

A body has a known type, a limited size and depth, and is UTF-8. A route declares a struct of its
parameters; unknown and repeated parameters are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from flask import request
from msgspec import Struct
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import RequestEntityTooLarge

from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, RequestTooLarge, locate_error, quote_error
from compatgate.kit.clock import parse_moment
from compatgate.kit.http.replies import UnsupportedMediaType
from compatgate.kit.http.schemas import END_OF_DAY
from compatgate.strict_json import DuplicateKeyError, check_depth, decode_strict

REASON_HEADER = "X-Compatgate-Reason"
LONGEST_REASON = 2000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
S = TypeVar("S", bound=Struct)
Q = TypeVar("Q", bound=Struct)


def read_body(media: tuple[str, ...], most: int) -> bytes:
    """Return the body as it was sent."""
    environ = request.environ
    stated = environ.get("CONTENT_TYPE", "")
    if stated != media[0]:
        kind, parameters = request.mimetype, request.mimetype_params
        if kind not in media:
            what = f"the content type {stated or '(none)'} is not supported"
            hint, value = f"send {' or '.join(media)}", stated or None
            raise UnsupportedMediaType(what, field="Content-Type", value=value, hint=hint)
        if parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
            raise UnsupportedMediaType("the text must be UTF-8", field="Content-Type", value=stated)
    if environ.get("HTTP_CONTENT_ENCODING", "identity") != "identity":
        what, value = "the body must not be encoded", environ["HTTP_CONTENT_ENCODING"]
        raise UnsupportedMediaType(what, field="Content-Encoding", value=value)
    if (request.content_length or 0) > most:
        raise body_too_large(most)
    try:
        raw = request.get_data(cache=False)
    except RequestEntityTooLarge:
        raise body_too_large(most) from None
    except Exception:  # of the socket, of Werkzeug, or of the server's parser of chunks
        raise incomplete_body() from None
    if len(raw) > most:  # in chunks; Werkzeug cuts those off at its own limit
        raise body_too_large(most)
    if len(raw) < (request.content_length or 0):
        raise incomplete_body()
    return raw


def body_too_large(most: int) -> RequestTooLarge:
    """Return the error for a body beyond the limit."""
    hint = f"at most {most} bytes; the server's --max-request-size raises it"
    return RequestTooLarge("the body is too large", field="body", hint=hint)


def incomplete_body() -> BadInput:
    """Return the error for an incomplete body."""
    hint = "the body is shorter than announced, has malformed chunks, or came too slowly"
    return BadInput("the body is not complete", field="body", hint=hint)


def to_text(raw: bytes) -> str:
    """Return the body as text."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {error.start}"
        raise BadInput("the body is not UTF-8 text", field="body", hint=where) from None


def to_object(raw: bytes, max_depth: int) -> dict[str, Any]:
    """Return the body as a JSON object."""
    check_depth(raw, max_depth)
    if not raw.strip():
        raise BadInput("the body is empty", field="body", hint="send a JSON object")
    try:
        value = decode_strict(raw)
    except DuplicateKeyError as error:
        raise BadInput(str(error), field=error.key, hint="state it once") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        what = "the body is not valid JSON"
        raise BadInput(what, field="body", hint=quote_error(error)) from None
    if not isinstance(value, dict):
        raise BadInput("the body must be a JSON object", field="body")
    return value


def to_struct(body: dict[str, Any], kind: type[S], hints: Mapping[str, str] | None = None) -> S:
    """Convert a body that is not a document to a struct; hints say what a field expects."""
    known = kind.__struct_fields__
    for key in body:
        if key not in known:
            raise BadInput("unknown key", field=key, hint=suggest_name(key, known))
    for needed in msgspec.structs.fields(kind):
        if needed.required and needed.name not in body:
            hint = (hints or {}).get(needed.name, "")
            raise BadInput("is missing", field=needed.name, hint=hint)
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        field, words = locate_error(error)
        about = [text for name, text in (hints or {}).items() if name in field]
        problem = f"has the wrong form: {words}"
        raise BadInput(problem, field=field or "body", hint=" ".join(about)) from None


class AnyQuery(Struct, frozen=True):
    """The query of a page that another site chooses parameters for; the page reads its own."""


class Parameter(NamedTuple):
    """A query parameter; ``ends_day``: a date means the end of that day."""

    attribute: str
    kind: Any
    is_time: bool
    ends_day: bool


@lru_cache(maxsize=256)
def parameters(kind: type[Struct]) -> dict[str, Parameter]:
    """Return the query parameters that a struct declares, by the name that a URL has."""
    found = {}
    for field in msgspec.structs.fields(kind):
        kind_of = field.type
        if get_origin(kind_of) in (Union, UnionType):  # a parameter that is present is not None
            kind_of = Union[tuple(part for part in get_args(kind_of) if part is not NoneType)]  # noqa: UP007
        parts = get_args(kind_of)
        ends_day = any(getattr(meta, "extra", None) == END_OF_DAY for meta in parts[1:])
        is_time = kind_of is datetime or datetime in parts
        found[field.encode_name] = Parameter(field.name, kind_of, is_time, ends_day)
    return found


def parse_query(kind: type[Q], args: MultiDict[str, str]) -> Q:
    """Read query parameters."""
    if kind is AnyQuery:
        return kind()
    known = parameters(kind)
    values: dict[str, Any] = {}
    for name, given in args.lists():
        if name not in known:
            hint = suggest_name(name, known) if known else "this route takes no parameters"
            raise BadInput("unknown query parameter", field=name, value=given[0], hint=hint)
        if len(given) > 1:
            raise BadInput("is stated twice", field=name, value=given[1], hint="give it once")
        values[known[name].attribute] = _read(name, given[0], known[name])
    return kind(**values)


def _read(name: str, text: str, parameter: Parameter) -> Any:
    if "\0" in text:
        raise BadInput("must not contain NUL", field=name, value=text)
    if parameter.is_time:
        return parse_moment(text, field=name, end_of_day=parameter.ends_day)
    try:
        return msgspec.convert(text, parameter.kind, strict=False)
    except msgspec.ValidationError as error:
        problem = f"{text[:80]!r} is not valid here"
        choices = _choices(parameter.kind)
        hint = f"one of {', '.join(choices)}" if choices else quote_error(error)
        raise BadInput(problem, field=name, value=text, hint=hint) from None


def _choices(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return [choice for part in get_args(kind) for choice in _choices(part)]


def read_reason(header: str | None, other: object) -> str:
    """Return the reason from the header, or else what the body or the query says.

    WSGI shows the header's UTF-8 as Latin-1.
    """
    field, value = "reason", other
    if header is not None:
        try:
            field, value = REASON_HEADER, header.encode("latin-1").decode("utf-8")
        except ValueError:
            raise BadInput("must be UTF-8 text", field=REASON_HEADER, value=header) from None
    if value is None or value == "":
        hint = f"give a reason in the header {REASON_HEADER} or as `reason`"
        raise BadInput("a change needs a reason", field="reason", hint=hint)
    if not isinstance(value, str) or not value.strip():
        raise BadInput("must be text", field=field, value=value)
    if len(value) > LONGEST_REASON or _CONTROL.search(value):
        hint = f"at most {LONGEST_REASON} characters, no control characters"
        raise BadInput("contains unprintable characters", field=field, hint=hint)
    return value.strip()
