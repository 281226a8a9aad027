"""Check that signatures of error texts match their samples, and that causes name known rules."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.catalog.checks import Check, Context, Problem
from compatgate.core.rules import BY_ID
from compatgate.core.triage import find_causes


def signature_samples(context: Context) -> Iterator[Problem]:
    """Check that the sample of a signature shows first the signature's cause."""
    table = context.facts.error_signatures
    for signature in table.signatures:
        found = find_causes(signature.sample, table)
        if not found or found[0].cause.id != signature.cause:
            shown = found[0].cause.id if found else "no cause"
            yield Problem(
                "signature-samples",
                f"error_signatures signatures[id={signature.id}]",
                f"its sample shows {shown}, not {signature.cause}",
            )


def cause_rules(context: Context) -> Iterator[Problem]:
    """Check that each cause has a signature, and that its rules exist."""
    table = context.facts.error_signatures
    shown = {signature.cause for signature in table.signatures}
    for cause in table.causes:
        subject = f"error_signatures causes[id={cause.id}]"
        if cause.id not in shown:
            yield Problem("cause-rules", subject, "no signature shows it")
        for rule in cause.rules:
            if rule not in BY_ID:
                yield Problem("cause-rules", subject, f"rule {rule} does not exist")


def cause_consequences(context: Context) -> Iterator[Problem]:
    """Check that what a cause explains is a kernel message or another cause."""
    table = context.facts.error_signatures
    known = set(context.facts.xid.by_notice) | set(table.by_id)
    for cause in table.causes:
        for name in cause.explains:
            if name not in known or name == cause.id:
                subject = f"error_signatures causes[id={cause.id}].explains"
                yield Problem(
                    "cause-consequences", subject, f"{name} is neither a message nor a cause"
                )


ERROR_CHECKS: tuple[Check, ...] = (signature_samples, cause_rules, cause_consequences)
