"""List and show documents and revisions of the matrix; delete documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput, NotFound
from compatgate.kit.cli.options import read_moment, reason_of
from compatgate.kit.cli.output import print_json, print_table, second
from compatgate.kit.cli.terminal import printable
from compatgate.service.cli.gate import Body, ask, ask_all
from compatgate.service.matrix.cli_files import print_changes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from compatgate.client import Client

_KINDS = ("entry", "waiver", "target")
_REMARKS = ("warnings", "promotion")
"""Members of an entry that come from canary runs."""
_BESIDE = ("revision", "created_at", "updated_at", *_REMARKS)
"""Members of an answer that do not belong to the document."""
_FILTERS = {
    "entries": ("target", "status", "component", "search"),
    "targets": ("search",),
    "waivers": ("target", "owner", "search"),
}


def show_list(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix list``."""
    from compatgate.client.operations import Operations

    listing: Any = {
        "entries": Operations.list_entries,
        "targets": Operations.list_targets,
        "waivers": Operations.list_waivers,
    }[args.kind]
    found = ask_all(gate, args.limit, listing, **_filters(args))
    if args.format == "json":
        print_json([_without(_REMARKS, body) for body in found])
        return 0
    head, cells = _COLUMNS[args.kind]
    print_table(head, map(cells, found), empty=f"no {args.kind}")
    return 0


def _filters(args: argparse.Namespace) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    for name in ("target", "status", "component", "owner", "search"):
        value = getattr(args, name)
        if value is None:
            continue
        if name not in _FILTERS[args.kind]:
            hint = f"filter {args.kind} by {', '.join(_FILTERS[args.kind])}"
            raise BadInput(f"{args.kind} have no {name}", field=f"--{name}", value=value, hint=hint)
        filters[name] = _canonical(value) if name == "component" else value
    return filters


def _canonical(component: str) -> str:
    from compatgate.core.components import resolve_component

    try:
        return resolve_component(component).component.name
    except BadInput as error:
        error.field = "--component"
        raise


def _without(names: Iterable[str], body: Body) -> Body:
    return {name: value for name, value in body.items() if name not in names}


def document_of(body: Body) -> Body:
    """Return the document of an answer in the form of files."""
    return _without(_BESIDE, body)


def _name(body: Body) -> str:
    return str(body["metadata"]["name"])


def _entry(entry: Body) -> tuple[object, ...]:
    spec = entry["spec"]
    components = " ".join(f"{name} {text}" for name, text in spec["components"].items())
    return (_name(entry), spec["status"], ",".join(spec["targets"]), entry["revision"], components)


def _target(target: Body) -> tuple[object, ...]:
    spec = target["spec"]
    pools = " ".join(f"{pool['gpu']}/{pool['driver']}" for pool in spec["pools"])
    return (_name(target), spec["policy"]["mode"], target["revision"], pools)


def _waiver(waiver: Body) -> tuple[object, ...]:
    spec = waiver["spec"]
    rules, targets = ",".join(spec["rules"]), ",".join(spec["targets"])
    return (_name(waiver), rules, targets, spec["owner"], spec["expires"], waiver["revision"])


_COLUMNS = {
    "entries": (("entry", "status", "targets", "revision", "components"), _entry),
    "targets": (("target", "mode", "revision", "pools"), _target),
    "waivers": (("waiver", "rules", "targets", "owner", "expires", "revision"), _waiver),
}


def show(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix show``."""
    import msgspec

    from compatgate.documents.text import to_yaml
    from compatgate.service.runs.promotion import Remarks

    found = _find(args, gate)
    if args.format == "json":
        print_json(found)
        return 0
    print(to_yaml(map(document_of, found)), end="")
    for body in found:
        for line in msgspec.convert(body, Remarks).lines():
            print(f"# {printable(line)}")
    return 0


def delete(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix delete``."""
    from compatgate.client.operations import Operations

    found = _find(args, gate)
    if len(found) > 1:
        kinds = " and ".join(body["kind"] for body in found)
        what = f"{args.name!r} names several documents: {kinds}"
        raise BadInput(what, field="name", value=args.name, hint="choose one with --kind")
    kind, name = found[0]["kind"], _name(found[0])
    delete = {
        "Entry": Operations.delete_entry,
        "Waiver": Operations.delete_waiver,
        "Target": Operations.delete_target,
    }[kind]
    revision = ask(gate, delete, name, reason=reason_of(args, f"matrix delete {name}"))["revision"]
    if args.format == "json":
        print_json({"kind": kind, "name": name, "revision": revision})
    else:
        print(f"- {kind} {name}\nrevision {revision}: 1 deleted")
    return 0


def _find(args: argparse.Namespace, gate: Client) -> list[Body]:
    from compatgate.client.operations import Operations

    show: dict[str, Any] = {
        "entry": Operations.show_entry,
        "waiver": Operations.show_waiver,
        "target": Operations.show_target,
    }
    if args.kind:
        return [ask(gate, show[args.kind], args.name)]
    found, hints = [], []
    for kind in _KINDS:
        try:
            found.append(ask(gate, show[kind], args.name))
        except NotFound as error:
            hints.append(error.hint)
    if not found:
        hint = next((hint for hint in hints if hint.startswith("did you mean")), "")
        what = f"there is no entry, waiver or target {args.name!r}"
        raise NotFound(what, field="name", value=args.name, hint=hint)
    return found


def log(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix log``."""
    from compatgate.client.operations import Operations

    if args.revision is not None:
        return _show_revision(args, gate)
    found = ask_all(
        gate,
        args.limit,
        Operations.list_revisions,
        name=args.name,
        since=read_moment(args.since, "--since"),
        until=read_moment(args.until, "--until", end_of_day=True),
    )
    if args.format == "json":
        print_json(found)
        return 0
    keys = ("number", "made_at", "author", "action", "count", "reason")
    rows = [[second(row[key]) if key == "made_at" else row[key] for key in keys] for row in found]
    head = ("revision", "made", "author", "action", "documents", "reason")
    print_table(head, rows, empty="no revisions")
    return 0


def _show_revision(args: argparse.Namespace, gate: Client) -> int:
    from compatgate.client.operations import Operations

    row = ask(gate, Operations.show_revision, args.revision)
    if args.format == "json":
        print_json(row)
        return 0
    made = second(row["made_at"])
    print(f"revision {row['number']}, {made}, {row['author']}: {row['reason']}")
    print_changes(row["changes"])
    return 0
