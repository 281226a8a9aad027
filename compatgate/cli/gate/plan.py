"""Run ``compatgate plan``: what an upgrade breaks, required canary runs, and the rollout order."""

from __future__ import annotations

import argparse
from typing import Any

from compatgate.check.question import read_changes
from compatgate.cli.gate.opening import Operations, gate_of
from compatgate.core.rule import exit_code, worst_exit
from compatgate.documents.specs import key_of, to_body
from compatgate.errors import BadInput
from compatgate.gate_client import ask
from compatgate.kit import clock
from compatgate.kit.cli.options import CHANGES, FORMAT_OR_MARKDOWN, PLACE
from compatgate.kit.cli.parser import server_of
from compatgate.kit.cli.usage import command
from compatgate.service.changes.comparison.render import Body, print_reports
from compatgate.service.changes.comparison.sections import report_plan


@command(
    """\
--target NAME ... (required)        target to upgrade; may be repeated, one plan per target
--upgrade driver|cuda[=VERSION] ...
    upgrade the driver (to the newest branch of its kind, or driver=580) or CUDA (to the series that
    the driver brings, or cuda=13.0); may be repeated
""",
    CHANGES,
    """\
--rack-label LABEL ...  node label whose value names a rack (default: known topology labels)
""",
    PLACE,
    "--bundle FILE  decide from a bundle, without recorded decisions and nodes",
    FORMAT_OR_MARKDOWN,
    epilog="""\
examples:
  compatgate plan --target prod-a100 --upgrade driver
  compatgate plan --target prod-a100 --upgrade driver=580 --upgrade cuda=13.0
  compatgate plan --target prod-a100 --set driver=580.95.05 --format markdown > plan.md
  compatgate plan --target prod-a100 --target inference-l4 --upgrade driver=580

exit status: 0 nothing in use breaks, 1 something breaks, 2 bad input, 3 unknown; the worst of
several targets. Findings that the target's policy only warns about give 0. Several targets give
JSON {"plans": [...]}, one plan each.
""",
    target={"default": None},
)
def run(args: argparse.Namespace) -> int:
    """Print one plan for each target."""
    body = _read_question(args)
    server_of(args)  # rejects more than one source
    if args.bundle:
        plans = _ask_bundle(args.bundle, args.target, body)
    else:
        with gate_of(args) as gate:
            plans = [ask(gate, Operations.plan, target, body) for target in args.target]
    answer = plans[0] if len(plans) == 1 else {"plans": plans}
    print_reports([report_plan(plan) for plan in plans], answer, args.format)
    return worst_exit(*(exit_code(one["verdict"], allowed=one["allowed"]) for one in plans))


def _read_question(args: argparse.Namespace) -> Body:
    if args.pool and len(args.target) > 1:
        hint = "ask about each target alone, or omit --pool"
        raise BadInput("needs a single --target", field="--pool", value=args.pool, hint=hint)
    changes = read_changes(args.set)
    if not changes and not args.upgrade:
        hint = "like --upgrade driver, or --set driver=580.95.05"
        raise BadInput("names no change", field="--upgrade", hint=hint)
    body = {
        "set": changes,
        "upgrade": args.upgrade,
        "pool": args.pool,
        "rack_labels": args.rack_label,
    }
    return {key: value for key, value in body.items() if value}


def _ask_bundle(path: str, targets: list[str], body: Body) -> list[Body]:
    from compatgate.service.changes.comparison.service import answer_plan
    from compatgate.service.matrix.snapshots.snapshot import load_bundle

    bundle = load_bundle(path)
    documents = {key_of(one.document): one.document for one in bundle.payload.documents}

    def find(name: str) -> dict[str, Any] | None:
        document = documents.get(("Entry", name))
        return to_body(document) if document else None

    remark = "a bundle has no decisions and no nodes: neither running stacks nor waves are known"
    snapshot, now = bundle.snapshot(), clock.now()
    return [
        answer_plan(body, target, snapshot, now, remarks=(remark,), find=find) for target in targets
    ]
