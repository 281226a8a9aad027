"""The verdict as ``POST /gate`` answers it, indented; several are an array."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from compatgate.cli.formats import Answer, View


def render(answers: Sequence[Answer], view: View) -> str:
    """The JSON document."""
    verdicts = [answer.verdict for answer in answers]
    document = verdicts[0] if len(verdicts) == 1 else verdicts
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
