"""Why a change was made: every change says so."""

from __future__ import annotations

import re

from compatgate.errors import BadInput

HEADER = "X-Compatgate-Reason"
LONGEST = 2000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def given_reason(header: str | None, other: object) -> str:
    """The reason from the header, or else from the body or the query.

    Args:
        header: of the request; WSGI shows its UTF-8 as Latin-1.
        other: what the body's or the query's ``reason`` says.

    Raises:
        BadInput: there is none, or it is not text.
    """
    field, value = ("reason", other) if header is None else (HEADER, _utf8(header))
    if value is None or value == "":
        raise BadInput(
            "a change needs a reason",
            field="reason",
            hint=f"say why in the header {HEADER}, or as reason",
        )
    if not isinstance(value, str) or not value.strip():
        raise BadInput("must be text that says why", field=field, value=value)
    if len(value) > LONGEST or _CONTROL.search(value):
        hint = f"at most {LONGEST} characters, no control characters"
        raise BadInput("is not a readable reason", field=field, hint=hint)
    return value.strip()


def _utf8(text: str) -> str:
    try:
        return text.encode("latin-1").decode("utf-8")
    except ValueError:
        raise BadInput("must be UTF-8 text", field=HEADER, value=text) from None
