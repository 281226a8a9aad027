"""Run ``compatgate matrix`` list, show, delete, log and waive, and ``compatgate target``.

``target from`` drafts a target from other projects' files, for review.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import timedelta
from typing import Any

import msgspec

from compatgate.catalog import load_facts
from compatgate.cli.commands import Group, Row, columns, format_rows
from compatgate.cli.gate import (
    RUN_MEMBERS,
    Client,
    Operations,
    asking,
    drop_members,
    drop_storage_members,
)
from compatgate.cli.matrix.files import describe_preview, describe_result, format_changes
from compatgate.core.components import resolve_component
from compatgate.core.rule import REFUSING
from compatgate.documents.specs import NAME_PATTERN
from compatgate.documents.text import to_json, to_yaml
from compatgate.errors import BadInput, InconclusiveInput, NotFound, naming
from compatgate.gate_client import Body, ask, ask_all
from compatgate.kit.cli.options import AUTHORSHIP, LIMIT, reason_of, user_name
from compatgate.kit.cli.output import (
    format_json_time,
    name_input,
    print_answer,
    read_text,
    say,
    strip_controls,
)
from compatgate.kit.cli.usage import action
from compatgate.kit.clock import today
from compatgate.kit.operations import load_operations

_FILTERS = ("target", "status", "component", "label", "owner", "search")
_KIND = "--kind {entry,waiver,target}  kind, if several documents have this name"
_WAIVER_DAYS = 7
_LISTS = {
    "entries": columns(
        *("entry: metadata.name", "spec.status", "spec.targets", "revision"), "spec.components"
    ),
    "targets": columns(
        *("target: metadata.name", "mode: spec.policy.mode", "revision"),
        ("pools", lambda one: [f"{p['gpu']}/{p['driver']}" for p in one["spec"]["pools"]]),
    ),
    "waivers": columns(
        *("waiver: metadata.name", "spec.rules", "spec.targets"),
        *("spec.owner", "spec.expires", "revision"),
    ),
}


@asking(
    "list entries, targets or waivers",
    """\
[kind: {entries,targets,waivers}] = entries  kind of documents
--target TARGET        target of entries or waivers
--status {candidate,blessed,deprecated,revoked}  status of entries
--component COMPONENT  component of entries
--owner OWNER          owner of the documents
--label KEY=VALUE      label of entries or targets
--search TEXT          part of the name
""",
    LIMIT,
)
def show_list(args: argparse.Namespace, gate: Client) -> int:
    """List documents of one kind; a filter that the kind lacks is refused."""
    name = f"list_{args.kind}"
    taken = {one.name for one in load_operations()[name].arguments}
    filters = {one: getattr(args, one) for one in _FILTERS if getattr(args, one) is not None}
    for one, value in filters.items():
        if one not in taken:
            hint = f"filter {args.kind} by {', '.join(f for f in _FILTERS if f in taken)}"
            raise BadInput(f"{args.kind} have no {one}", field=f"--{one}", value=value, hint=hint)
    if args.component is not None:
        with naming("--component"):
            filters["component"] = resolve_component(args.component).component.name
    listing: Any = getattr(Operations, name)
    found = ask_all(gate, args.limit, listing, **filters)
    return print_answer(
        args.format,
        [drop_members(RUN_MEMBERS, body) for body in found],
        format_rows(found, _LISTS[args.kind]) if found else f"no {args.kind}",
    )


@asking(
    "print a document, or a proposal",
    "NAME  name of an entry, target or waiver, or id of a proposal",
    _KIND,
)
def show_document(args: argparse.Namespace, gate: Client) -> int:
    """Print the documents of a name, with what canary runs say of entries as comments."""
    from compatgate.service.matrix.proposals.schemas import PROPOSAL_ID
    from compatgate.service.runs.evidence.promotion import EntryRemarks

    if PROPOSAL_ID.fullmatch(args.name) and not args.kind:
        from compatgate.cli.matrix.proposals import format_proposal

        one = ask(gate, Operations.show_proposal, args.name)
        return print_answer(args.format, one, lambda: format_proposal(one))
    found = _find_documents(args, gate)
    remarks = [line for body in found for line in msgspec.convert(body, EntryRemarks).lines()]
    text = to_yaml(map(drop_storage_members, found))
    text += "".join(f"# {strip_controls(line)}\n" for line in remarks)
    return print_answer(args.format, found, text.removesuffix("\n"))


@asking(
    "delete an entry, waiver or target; earlier revisions keep it",
    "NAME  name of an entry, waiver or target",
    _KIND,
    AUTHORSHIP,
)
def delete_document(args: argparse.Namespace, gate: Client) -> int:
    """Delete the one document of a name."""
    found = _find_documents(args, gate)
    if len(found) > 1:
        kinds = " and ".join(body["kind"] for body in found)
        what = f"{args.name!r} names several documents: {kinds}"
        raise BadInput(what, field="name", value=args.name, hint="choose one with --kind")
    kind, name = found[0]["kind"], found[0]["metadata"]["name"]
    delete: Any = getattr(Operations, f"delete_{kind.lower()}")
    revision = ask(gate, delete, name, reason=reason_of(args, f"matrix delete {name}"))["revision"]
    answer = {"kind": kind, "name": name, "revision": revision}
    return print_answer(args.format, answer, f"- {kind} {name}\nrevision {revision}: 1 deleted")


def _find_documents(args: argparse.Namespace, gate: Client) -> list[Body]:
    found, hints = [], []
    for kind in [args.kind] if args.kind else ("entry", "waiver", "target"):
        show: Any = getattr(Operations, f"show_{kind}")
        try:
            found.append(ask(gate, show, args.name))
        except NotFound as error:
            if args.kind:
                raise
            hints.append(error.hint)
    if not found:
        hint = next((hint for hint in hints if hint.startswith("did you mean")), "")
        what = f"no entry, waiver or target has the name {args.name!r}"
        raise NotFound(what, field="name", value=args.name, hint=hint)
    return found


def _format_revision(row: Body) -> str:
    proposal, at = row["proposal"], format_json_time(row["made_at"])
    made = f"merged by {proposal}" if proposal else "made directly, without a proposal"
    head = f"revision {row['number']}, {at}, {row['author']}: {row['reason']}"
    return "\n".join([head, made, *format_changes(row["changes"])])


LOG = Row(
    "list_revisions",
    """\
--name NAME
--since TIME
--until TIME
[number: REVISION]  revision to show in full
""",
    columns(
        *("revision: number", "made: made_at", "author", "action", "documents: count"),
        *(("proposal", lambda row: row["proposal"] or "direct"), "reason"),
    ),
    text=_format_revision,
    settings={"number": {"type": int}},
    show="show_revision",
    summary="list revisions, or show what one changed",
)


@asking(
    "waive the rules that denied one stack",
    f"""\
VERDICT            id of the denied verdict
--name NAME        name of the waiver (default: target and first rule)
--owner OWNER      owner of the waiver (default: your user name)
--days N = {_WAIVER_DAYS}  days until the last day of the waiver
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
        raise BadInput("is missing", field="--reason", hint="state the reason, which verdicts show")
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
    from compatgate.service.matrix.documents.waivers import (
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


@action(
    "draft a target from Kubernetes nodes and GPU Operator objects",
    """\
files: FILE|- ...       YAML or JSON files, read together
--name NAME (required)  name of the target
--gpu PRODUCT           GPU; overrides the files
--driver VERSION        driver; overrides the files
--cpu {x86_64,aarch64}  CPU; overrides the files
--format {yaml,json} = yaml  output format
""",
    epilog="""\
examples:
  compatgate target from nodes.yaml --name staging-h100 > target.yaml
  kubectl get nodes,clusterpolicies,nvidiadrivers -o json | compatgate target from - --name prod
  compatgate target from clusterpolicy.yaml --name next --gpu L4 --driver 595.91.07
  compatgate matrix import target.yaml

Values that no file states are left out and listed, with exit status 3: state them with options.
""",
)
def run_from(args: argparse.Namespace) -> int:
    """Print the drafted target, with notes as comments (JSON: on standard error)."""
    from compatgate.discovery.drafts import draft_target, read_drafts
    from compatgate.discovery.node_labels import LARGEST

    if not re.fullmatch(NAME_PATTERN, args.name):
        hint = "letters, digits, and . _ - between them"
        raise BadInput("is not a target name", field="--name", value=args.name, hint=hint)
    facts = load_facts()
    if args.files.count("-") > 1:
        raise BadInput("standard input can be read only once", field="files")
    texts = [(name_input(path), read_text(path, "files", LARGEST)) for path in args.files]
    draft = read_drafts(texts, facts).filled(
        facts.gpus, gpu=args.gpu, driver=args.driver, cpu=args.cpu
    )
    document = draft_target(draft, args.name, facts.gpus)
    remarks = [
        *(
            f"pool {pool.name}: {name} is not known: {pool.why.get(name, 'nothing names it')}"
            for pool in draft.pools
            for name in pool.missing
        ),
        *draft.notes,
    ]
    remarks = [" ".join(strip_controls(text).split()) for text in remarks]
    if args.format == "json":
        for remark in remarks:
            say(f"note: {remark}")
        print(to_json([document]), end="")
    else:
        print("".join(f"# {remark}\n" for remark in remarks) + to_yaml([document]), end="")
    sys.stdout.flush()
    missing = [f"{pool.name}: {name}" for pool in draft.pools for name in pool.missing]
    if missing:
        what = f"missing: {', '.join(missing)}"
        hint = "state it with --gpu or --driver, or add a file that states it"
        raise InconclusiveInput(what, field=args.name, hint=hint)
    return 0


DELETE: Row = Row(
    "delete_target",
    text="{name} is deleted (revision {revision})",
    reason="target delete {name}",
    answer=lambda args: {"name": args.name, "deleted": True, **DELETE.ask(args)},
)


run_target = Group(
    {
        "list": Row(
            "list_targets",
            "--label KEY=VALUE\n...",
            columns(
                *("target: of.metadata.name", "mode: of.spec.policy.mode", "pool: name"),
                *("gpu", "driver", "nodes: count", "revision: of.revision"),
            ),
            items=lambda targets, args: [
                {**pool, "of": target} for target in targets for pool in target["spec"]["pools"]
            ],
        ),
        "show": Row(
            "show_target",
            text=lambda target: to_yaml([drop_storage_members(target)]).rstrip("\n"),
            summary="print a target as a document",
        ),
        "what-if": "cli.gate.comparison:run_what_if",
        "delete": DELETE,
        "from": run_from,
    },
    epilog="""\
Create and change targets with compatgate matrix import.
""",
)
