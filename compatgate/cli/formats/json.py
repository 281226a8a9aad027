"""The verdict as ``POST /gate`` answers it, indented; an array where several files were named."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from compatgate.cli.formats import Answer, View


def render(answers: Sequence[Answer], view: View) -> str:
    """The JSON document."""
    verdicts = [answer.verdict for answer in answers]
    one = len(answers) == 1 and not answers[0].file
    document = verdicts[0] if one else verdicts
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
