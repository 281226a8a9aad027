"""Assume the libraries that a wheel pins, where a stack leaves them out and an entry asks for them.

``torch=2.8.0+cu128`` brings cuDNN 9.10.2 and NCCL 2.27.3: an entry that names these would never
match the stack as people write it. The assumption is a finding of its own (CG804).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from compatgate.core.components import sort_components
from compatgate.core.matrix import STATUSES_IN_USE
from compatgate.core.versions import Version, format_parts, parse_version

if TYPE_CHECKING:
    from compatgate.core.rule_context import RuleContext


def assume_pins(context: RuleContext) -> RuleContext:
    """Return the question with the pins of its wheels, where an entry then blesses it.

    Nothing is assumed where an entry matches what is stated, where ``entries: strict`` asks for
    every name, or where the stack is that of an image or of files: what these hold counts, and an
    image that was not read may hold anything.
    """
    stack, policy = context.stack, context.policy
    of_files = stack.image is not None or stack.content is not None or stack.measured
    if of_files or not policy.require_entry or policy.entries == "strict" or context.deciding:
        return context
    pins = {name: pin for name, pin in _list_pins(context).items() if name not in stack.versions}
    if not pins:
        return context
    entry = _with_pins(context, pins).deciding
    if entry is None or entry.status not in STATUSES_IN_USE:
        return context
    return _with_pins(context, {name: pins[name] for name in pins if name in entry.components})


def _list_pins(context: RuleContext) -> dict[str, Version]:
    found: dict[str, set[Version]] = {}
    for match in context.built:
        build, release = match.build, match.release
        if build is None or release is None or context.pool.cpu in release.cpu_only:
            continue
        if context.pool.os == "windows":  # those wheels hold the libraries, and pin none
            continue
        for name, pin in {**release.pins, **build.pins}.items():
            if pin.floor is not None and pin.spec.startswith("==") and not pin.optional:
                found.setdefault(name, set()).add(
                    parse_version(name, format_parts(pin.floor.at(3)))
                )
    return {name: versions.pop() for name, versions in found.items() if len(versions) == 1}


def _with_pins(context: RuleContext, pins: dict[str, Version]) -> RuleContext:
    have = {**context.stack.components, **pins}
    stack = replace(context.stack, components={name: have[name] for name in sort_components(have)})
    return context.on(stack, context.pool, brief=False, assumed_pins=pins)
