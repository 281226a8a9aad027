"""What an attestation is about: an image by its digest, or a stack by the digest of its form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from compatgate.core.stack import Stack, complete, parse_stack
from compatgate.discovery.image import parse_reference
from compatgate.errors import BadInput

_REMARKS = ("open", "conflicts", "unread", "unmeasured")
_UNORDERED = ("arch", "require")
_encode = msgspec.json.Encoder(order="sorted").encode

DigestSet = dict[str, str]
"""Algorithm to lower-case hexadecimal digits, as in-toto writes digests."""


def digest_of(value: Any) -> DigestSet:
    """The SHA-256 of a JSON value: keys sorted, no white space, UTF-8 (RFC 8785)."""
    return {"sha256": hashlib.sha256(_encode(value)).hexdigest()}


def digest_set(text: str) -> DigestSet:
    """``sha256:1a2b...`` as in-toto writes it."""
    algorithm, _, digits = text.partition(":")
    return {algorithm: digits}


def stack_digest(stack: Mapping[str, Any]) -> DigestSet:
    """The digest of a stack in its canonical form.

    Args:
        stack: as answers carry it. Remarks (``open``, ``conflicts``, ``unread``, ``unmeasured``) do
            not count, and neither does the order of ``arch`` and ``require``.
    """
    form = {name: value for name, value in stack.items() if name not in _REMARKS}
    for name in _UNORDERED:
        if name in form:
            form[name] = sorted(form[name])
    return digest_of(form)


def stated_digest(stated: Mapping[str, Any]) -> DigestSet:
    """The digest that the verdict on a stated stack has.

    Args:
        stated: as requests carry it.

    Raises:
        BadInput: malformed; ``field`` names the key.
    """
    stack: Stack = complete(parse_stack(stated))
    return stack_digest(stack.to_json())


def image_digest(image: str | None) -> DigestSet | None:
    """The digest in an image's reference, None where there is none."""
    try:
        found = parse_reference(image).digest if image else None
    except BadInput:
        return None
    return digest_set(found) if found else None


def image_name(image: str) -> str:
    """A reference without tag and digest."""
    name = parse_reference(image)
    return f"{name.registry}/{name.repository}"
