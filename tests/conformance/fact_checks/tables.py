"""Check host compilers against toolkits, and error texts against their samples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from compatgate.catalog.references import Check, Context, Problem
from compatgate.core.facts.compilers import COMPILERS, HostCompiler
from compatgate.core.triage import find_causes
from compatgate.core.versions import format_parts, parse_version


def compiler_rows(context: Context) -> Iterator[Problem]:
    """Check that each toolkit from CUDA 11 on has GCC, Clang and standards, and each row one."""
    table, toolkits = context.facts.compilers, context.facts.cuda_driver.toolkits
    for toolkit in toolkits:
        for name in ("gcc", "clang"):
            if toolkit.version.major >= 11 and table.host(toolkit.version, name) is None:
                subject = f"compilers {toolkit.version} {name}"
                yield Problem("compiler-rows", subject, "the toolkit has no row")
    for row in table.hosts:
        if parse_version("cuda", row.cuda).major_minor not in context.facts.toolkits_of:
            yield Problem("compiler-rows", f"compilers {row.cuda}", "no toolkit has this name")
    for pair in table.series:
        cuda = parse_version("cuda", format_parts(pair))
        count = sum(row.cuda.allows(cuda) for row in table.standards)
        if count != 1:
            yield Problem("compiler-rows", f"compilers {cuda}", f"{count} rows of standards")


def compiler_order(context: Context) -> Iterator[Problem]:
    """Check that a toolkit takes no older compiler at most than the toolkit before it."""
    for name in COMPILERS:
        rows = [row for row in context.facts.compilers.hosts if row.compiler == name]
        for before, after in pairwise(sorted(rows, key=_order)):
            if _end(after) < _end(before):
                what = f"{after.accepts} ends before that of {before.cuda}, {before.accepts}"
                yield Problem("compiler-order", f"compilers {after.cuda} {name}", what)


def _order(row: HostCompiler) -> tuple[tuple[int, ...], int]:
    """Sort by toolkit; the row of a first release comes before that of its series."""
    parts = tuple(map(int, row.cuda.split(".")))
    return parts[:2], 0 if len(parts) > 2 else 1


def _end(row: HostCompiler) -> tuple[int, ...]:
    return min(c.version.parts for c in row.accepts.clauses if c.operator == "<")


def signature_samples(context: Context) -> Iterator[Problem]:
    """Check that a sample shows its signature's cause first, or another by the same words."""
    table = context.facts.error_signatures
    for signature in table.signatures:
        found = find_causes(signature.sample, table)
        first = [one.cause.id for one in found if one.seen == found[0].seen]
        if signature.cause not in first:
            shown = " and ".join(first) or "no cause"
            yield Problem(
                "signature-samples",
                f"error_signatures signatures[id={signature.id}]",
                f"its sample shows {shown}, not {signature.cause}",
            )


CHECKS: tuple[Check, ...] = (
    compiler_rows,
    compiler_order,
    signature_samples,
)
