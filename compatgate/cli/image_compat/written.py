"""The spec of a stack as text, and what it leaves out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compatgate.core.facts import Facts


def spec_text(stack: dict[str, Any], platform: str, facts: Facts) -> str:
    """The spec of a stack in the form of requests; what it leaves out goes to standard error.

    Raises:
        BadInput: a version in the stack is malformed.
        Inconclusive: no rule can be written.
    """
    from compatgate.cli.terminal import printable
    from compatgate.core.stack import Stack, parse_stack
    from compatgate.discovery.nfd import spec_of_stack, write_spec
    from compatgate.discovery.nfd.devices import load_devices

    parsed = parse_stack(stack) if stack else Stack({})
    written = spec_of_stack(parsed, facts, load_devices(), platform=platform)
    for text in written.left_out:
        print(f"warning: not in the spec: {printable(text)}", file=sys.stderr)
    return write_spec(written.spec)
