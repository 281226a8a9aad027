"""Semantic versions as golang.org/x/mod/semver reads them, without the leading ``v``."""

from __future__ import annotations

import re

Key = tuple[object, ...]

_NUMBER = r"(0|[1-9][0-9]*)"
_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(
    rf"{_NUMBER}(?:\.{_NUMBER}(?:\.{_NUMBER}(?:-({_IDENTIFIERS}))?(?:\+{_IDENTIFIERS})?)?)?"
)

BELOW_EVERY_VERSION: Key = ()
"""The key of a version that is not valid: less than every valid one, equal to its like."""


def key(version: str) -> Key | None:
    """A key that sorts as `semver.Compare` does; None if the version is not valid.

    ``12`` and ``12.4`` stand for ``12.0.0`` and ``12.4.0``; numbers have no leading zeros; a
    pre-release (``12.4.0-rc1``) sorts before its release; build metadata does not count.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return None
    major, minor, patch, prerelease = match.groups()
    if prerelease is None:
        return (_number(major), _number(minor or "0"), _number(patch or "0"), 1)
    identifiers = prerelease.split(".")
    if any(i.isdigit() and i[0] == "0" and i != "0" for i in identifiers):
        return None
    ranked = tuple((0, *_number(i)) if i.isdigit() else (1, i) for i in identifiers)
    return (_number(major), _number(minor), _number(patch), 0, ranked)


def _number(digits: str) -> tuple[int, str]:
    # Of two numbers without leading zeros the longer is the larger: exact at any length, where
    # int() would refuse thousands of digits.
    return len(digits), digits
