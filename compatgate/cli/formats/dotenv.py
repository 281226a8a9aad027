"""The answer as variables, for steps that follow: GitLab's dotenv report, Tekton's results.

Values are words of ASCII letters, digits and ``_.-``, so that a shell may read the file, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from compatgate.cli.formats import Answer, View, words

_OTHER = re.compile(r"[^A-Za-z0-9_.\-]")


def render(answers: Sequence[Answer], view: View) -> str:
    """``COMPATGATE_VERDICT``, ``COMPATGATE_ALLOWED`` and ``COMPATGATE_ID``, of the worst answer."""
    return "\n".join(
        f"COMPATGATE_{name.upper()}={_OTHER.sub('', value)}"
        for name, value in words.outcome(answers).items()
    )
