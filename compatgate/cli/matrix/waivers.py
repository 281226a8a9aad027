"""Waive what denied a stack: ``matrix waive``."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

from compatgate.cli.gate.opening import Client, Operations, asking
from compatgate.cli.matrix.files import describe_preview, describe_result
from compatgate.core.rule import REFUSING
from compatgate.errors import BadInput
from compatgate.gate_client import Body, ask
from compatgate.kit.cli.options import AUTHORSHIP, user_name
from compatgate.kit.cli.output import print_answer
from compatgate.kit.clock import today

DAYS = 7


@asking(
    "waive the rules that denied one stack",
    f"""\
VERDICT            id of the denied verdict
--name NAME        name of the waiver (default: target and first rule)
--owner OWNER      owner of the waiver (default: your user name)
--days N = {DAYS}  days until the last day of the waiver
--dry-run          show what the waiver would allow
""",
    AUTHORSHIP,
    epilog="""\
examples:
  compatgate matrix waive vd_52f3d1a2b4c6e8f0 --reason "moves to torch 2.8 on Friday" --dry-run
  compatgate matrix waive vd_52f3d1a2b4c6e8f0 --reason "moves to torch 2.8 on Friday" --days 3

The waiver covers exactly the verdict's rules, target and image; without an image, the versions of
its stack. --dry-run shows which other recorded questions it would allow.
""",
)
def waive(args: argparse.Namespace, gate: Client) -> int:
    """Import a waiver of what denied a verdict, or show what it would allow."""
    if not args.reason and not args.dry_run:
        hint = "state the reason, which verdicts show"
        raise BadInput("is missing", field="--reason", hint=hint)
    verdict = ask(gate, Operations.show_verdict, args.verdict)
    document = _draft(args, verdict)
    reason = args.reason or "dry run"
    result = ask(gate, Operations.import_matrix, [document], reason=reason, dry_run=args.dry_run)
    lines = [
        f"No waiver can cover {one['rule']} {one['name']}: {one['message']}"
        for one in verdict["findings"]
        if one["outcome"] in REFUSING and one["rule"] not in document["spec"]["rules"]
    ]
    lines += [*describe_preview(result), describe_result(result)]
    return print_answer(args.format, {**result, "dry_run": args.dry_run}, "\n".join(lines))


def _draft(args: argparse.Namespace, verdict: Body) -> Body:
    """Return the document of a waiver for one verdict."""
    from compatgate.service.matrix.waivers.service import (
        draft_waiver_form,
        parse_components,
        split_words,
    )

    if verdict["verdict"] not in REFUSING:
        what = f"the verdict is {verdict['verdict']}: no finding to waive"
        raise BadInput(what, field="verdict", value=args.verdict)
    begun = draft_waiver_form(verdict)
    rules = split_words(begun["rules"])
    if not rules:
        denying = sorted({f["rule"] for f in verdict["findings"] if f["outcome"] in REFUSING})
        hint = "compatgate explain RULE says why"
        what = f"no waiver can cover {', '.join(denying)}"
        raise BadInput(what, field="verdict", value=args.verdict, hint=hint)
    match: dict[str, Any] = {"image": begun["image"]} if begun.get("image") else {}
    if not match and begun.get("components"):
        match = {"components": parse_components(begun["components"])}
    if not (begun["targets"] and rules and match):
        hint = "write the waiver as a file, then run: compatgate matrix import FILE --dry-run"
        what = "names no target, or neither image nor versions"
        raise BadInput(what, field="verdict", value=args.verdict, hint=hint)
    return {
        "apiVersion": "compatgate.dev/v1",
        "kind": "Waiver",
        "metadata": {"name": args.name or f"{begun['targets']}-{rules[0].lower()}"},
        "spec": {
            "rules": rules,
            "targets": [begun["targets"]],
            "match": match,
            "owner": args.owner or args.changed_by or user_name(),
            "reason": args.reason or "dry run",
            "expires": (today() + timedelta(days=args.days)).isoformat(),
        },
    }
