"""The verdict as ``POST /gate`` answers it, indented."""

from __future__ import annotations

import msgspec

from compatgate.cli.formats import Json, View


def render(verdict: Json, view: View) -> str:
    """The JSON document."""
    return msgspec.json.format(msgspec.json.encode(verdict), indent=2).decode()
