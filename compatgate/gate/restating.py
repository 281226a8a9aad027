"""An entry with another status: what blessing, deprecating and revoking do to its document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatgate.core.matrix import Status
from compatgate.errors import BadInput

VERBS: dict[Status, str] = {"blessed": "Bless", "deprecated": "Deprecate", "revoked": "Revoke"}
"""What may become of an entry, and what that is called."""


def restated(
    document: Mapping[str, Any], status: str, reason: str, replacement: str = ""
) -> dict[str, Any]:
    """The document of an entry with another status.

    Args:
        document: as it is stored.
        status: one of `VERBS`.
        reason: why; the entry says so from then on.
        replacement: what to use instead; a blessed entry has none.

    Raises:
        BadInput: it is no such status, or the entry has it, or it would replace itself.
    """
    old = document["spec"]
    name = document["metadata"]["name"]
    if status not in VERBS:
        hint = f"one of {', '.join(VERBS)}"
        raise BadInput("is not what an entry can become", field="status", value=status, hint=hint)
    if status == old["status"]:
        raise BadInput(f"the entry is {status} already", field="status", value=status)
    if replacement == name:
        hint = "name another entry, or say in words what to use"
        raise BadInput("an entry cannot replace itself", field="replacement", hint=hint)
    spec = {key: value for key, value in old.items() if key not in ("reason", "replacement")}
    spec |= {"status": status, "reason": reason}
    if replacement and status != "blessed":
        spec["replacement"] = replacement
    return {**document, "spec": spec}
