"""Why a container runtime would not start a container, in its words and in ours."""

from __future__ import annotations

import re

from compatgate.errors import CompatgateError, NotFound

_NOT_IN_IMAGE = re.compile(
    r"executable file not found|exec format error|"
    r"(?:exec|stat) \S+: (?:no such file or directory|permission denied)"
)


def cannot_start(what: str, program: str, host: str) -> CompatgateError | None:
    """The error for what a runtime said; None where that says nothing of image or driver.

    Args:
        what: it said.
        program: that the workload's command calls.
        host: where.
    """
    if match := re.search(r"requirement error: (.*)", what):
        problem = f"NVIDIA's container runtime refuses the image on {host}: {match[1]}"
        hint = "the image asks for a newer driver or another GPU; see 'compatgate require'"
        return CompatgateError(problem, field="image", hint=hint)
    if _NOT_IN_IMAGE.search(what):
        problem = f"the image cannot run {program!r}, which the workload's command calls: {what}"
        return NotFound(problem, field="command", value=program)
    return None
