"""What forms carry that is read alike everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compatgate.errors import BadInput

MOST_CHOICES = 200
"""That a list in a form offers."""
_DIGITS = 9


def expected_revision(form: Mapping[str, str]) -> int:
    """The revision of the document that was looked at when the form was made.

    Raises:
        BadInput: it is not there, or no number.
    """
    text = form.get("revision", "")
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS:
        raise BadInput("is not a revision", field="revision", value=text, hint="reload the page")
    return int(text)


def choices(values: Iterable[str]) -> list[str] | None:
    """What a form lets one choose from; None: too many, they are typed."""
    found = sorted(set(values))
    return found if len(found) <= MOST_CHOICES else None
