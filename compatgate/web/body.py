"""Bodies of requests: of a known type, not too large, UTF-8, not too deep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from flask import request
from werkzeug.exceptions import RequestEntityTooLarge

from compatgate.documents.names import did_you_mean
from compatgate.errors import BadInput, TooLarge
from compatgate.json_once import KeyTwice, decode_once
from compatgate.web.errors import UnsupportedMedia

S = TypeVar("S", bound=msgspec.Struct)


def read(media: tuple[str, ...], most: int) -> bytes:
    """The body as it was sent.

    Args:
        media: content types accepted; the first is the usual one.
        most: bytes that a body may have.

    Raises:
        UnsupportedMedia: another content type than those accepted, or compressed.
        BadInput: the client stopped sending.
        TooLarge: larger than the server accepts.
    """
    environ = request.environ
    stated = environ.get("CONTENT_TYPE", "")
    if stated != media[0]:
        _check_type(stated, media)
    if environ.get("HTTP_CONTENT_ENCODING", "identity") != "identity":
        what = environ["HTTP_CONTENT_ENCODING"]
        raise UnsupportedMedia("send the body as it is", field="Content-Encoding", value=what)
    if (request.content_length or 0) > most:
        raise too_large(most)
    try:
        raw = request.get_data(cache=False)
    except RequestEntityTooLarge:
        raise too_large(most) from None
    except Exception:  # of the socket, of Werkzeug, or of the server's parser of chunks
        raise incomplete() from None
    if len(raw) > most:  # in chunks; Werkzeug cuts those off at its own limit
        raise too_large(most)
    if len(raw) < (request.content_length or 0):
        raise incomplete()
    return raw


def too_large(most: int) -> TooLarge:
    """The error for a body beyond the limit."""
    hint = f"at most {most} bytes; the server's --max-request-size raises it"
    return TooLarge("the body is too large", field="body", hint=hint)


def incomplete() -> BadInput:
    """The error for a body of which only a part arrived."""
    hint = "shorter than announced, malformed chunks, or sent too slowly"
    return BadInput("the body is not complete", field="body", hint=hint)


def _check_type(stated: str, media: tuple[str, ...]) -> None:
    kind, parameters = request.mimetype, request.mimetype_params
    if kind not in media:
        raise UnsupportedMedia(
            f"the content type {stated or '(none)'} is not accepted here",
            field="Content-Type",
            value=stated or None,
            hint=f"send {' or '.join(media)}",
        )
    if parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        raise UnsupportedMedia("the text must be UTF-8", field="Content-Type", value=stated)


def to_text(raw: bytes) -> str:
    """The body as text.

    Raises:
        BadInput: not UTF-8.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {error.start}"
        raise BadInput("the body is not UTF-8 text", field="body", hint=where) from None


def to_object(raw: bytes, max_depth: int) -> dict[str, Any]:
    """The body as a JSON object.

    Raises:
        BadInput: not JSON, not UTF-8, nested too deeply, not an object, or one with a key twice.
    """
    check_depth(raw, max_depth)
    if not raw.strip():
        raise BadInput("the body is empty", field="body", hint="send a JSON object")
    try:
        value = decode_once(raw)
    except KeyTwice as error:
        raise BadInput(str(error), field=error.key, hint="state it once") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BadInput("the body is not valid JSON", field="body", hint=str(error)) from None
    if not isinstance(value, dict):
        raise BadInput("the body must be a JSON object", field="body")
    return value


def check_depth(raw: bytes, most: int) -> None:
    """Refuse a body that is nested deeper than anything that the gate reads.

    Raises:
        BadInput: deeper than ``most``.
    """
    if raw.count(b"[") + raw.count(b"{") <= most:
        return
    depth = 0
    in_string = escaped = False
    for byte in raw:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            if depth > most:
                raise BadInput("nested too deeply", field="body", hint=f"at most {most} levels")
        elif byte in b"]}":
            depth -= 1


def to_struct(body: dict[str, Any], kind: type[S], hints: Mapping[str, str] | None = None) -> S:
    """A body as a struct, for what is no document.

    Args:
        body: as it was sent.
        kind: of struct.
        hints: what would be right, by field.

    Raises:
        BadInput: an unknown key, a missing one, or a wrong type; names the field.
    """
    known = kind.__struct_fields__
    for key in body:
        if key not in known:
            raise BadInput("unknown key", field=key, hint=did_you_mean(key, known))
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        field = path.strip("`.").replace("[...]", "[0]") or None
        about = [text for name, text in (hints or {}).items() if name in (field or problem)]
        raise BadInput(problem.replace("`", "'"), field=field, hint=" ".join(about)) from None
