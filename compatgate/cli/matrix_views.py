"""The parts of ``compatgate matrix`` that show what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.cli.database import authorship, collect, moment, print_json, print_table, seconds
from compatgate.cli.matrix_files import print_changes
from compatgate.cli.terminal import printable
from compatgate.errors import BadInput, NotFound

if TYPE_CHECKING:
    import argparse

    from compatgate.cli.service import Service
    from compatgate.documents.specs import Kind
    from compatgate.store.rows import Stored

_KINDS: dict[str, Kind] = {"entry": "Entry", "waiver": "Waiver", "target": "Target"}
_FILTERS = {
    "entries": ("target", "status", "component", "search"),
    "targets": ("search",),
    "waivers": ("target", "owner", "search"),
}


def show_list(args: argparse.Namespace, gate: Service) -> int:
    """``matrix list``."""
    fetch = {
        "entries": gate.matrix.list_entries,
        "targets": gate.matrix.list_targets,
        "waivers": gate.matrix.list_waivers,
    }[args.kind]
    found = collect(fetch, args.limit, **_filters(args))
    if args.format == "json":
        print_json([stored.to_json() for stored in found])
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
            hint = f"{args.kind} are filtered by {', '.join(_FILTERS[args.kind])}"
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


def _entry(entry: Stored) -> tuple[object, ...]:
    spec = entry.document["spec"]
    components = " ".join(f"{name} {text}" for name, text in spec["components"].items())
    return (entry.name, spec["status"], ",".join(spec["targets"]), entry.revision, components)


def _target(target: Stored) -> tuple[object, ...]:
    spec = target.document["spec"]
    pools = " ".join(f"{pool['gpu']}/{pool['driver']}" for pool in spec["pools"])
    return (target.name, spec["policy"]["mode"], target.revision, pools)


def _waiver(waiver: Stored) -> tuple[object, ...]:
    spec = waiver.document["spec"]
    rules, targets = ",".join(spec["rules"]), ",".join(spec["targets"])
    return (waiver.name, rules, targets, spec["owner"], spec["expires"], waiver.revision)


_COLUMNS = {
    "entries": (("entry", "status", "targets", "revision", "components"), _entry),
    "targets": (("target", "mode", "revision", "pools"), _target),
    "waivers": (("waiver", "rules", "targets", "owner", "expires", "revision"), _waiver),
}


def show(args: argparse.Namespace, gate: Service) -> int:
    """``matrix show``."""
    from compatgate.documents.write import to_yaml
    from compatgate.gate.runs.remarks import Remarks

    found = _find(args, gate)
    said = gate.runs.remarks(stored.name for stored in found if stored.kind == "Entry")
    if args.format == "json":
        nothing = Remarks()
        print_json(
            [
                {**row.to_json(), **(said[row.name] if row.kind == "Entry" else nothing).to_json()}
                for row in found
            ]
        )
        return 0
    print(to_yaml(stored.document for stored in found), end="")
    for remarks in said.values():
        for line in remarks.lines():
            print(f"# {printable(line)}")
    return 0


def delete(args: argparse.Namespace, gate: Service) -> int:
    """``matrix delete``."""
    found = _find(args, gate)
    if len(found) > 1:
        kinds = " and ".join(stored.kind for stored in found)
        what = f"{args.name!r} names several documents: {kinds}"
        raise BadInput(what, field="name", value=args.name, hint="say which with --kind")
    (stored,) = found
    by = authorship(args, f"matrix delete {args.name}")
    revision = gate.matrix.delete(_KINDS[stored.kind.lower()], stored.name, by)
    if args.format == "json":
        print_json({"kind": stored.kind, "name": stored.name, "revision": revision})
    else:
        print(f"- {stored.kind} {stored.name}\nrevision {revision}: 1 deleted")
    return 0


def _find(args: argparse.Namespace, gate: Service) -> list[Stored]:
    if args.kind:
        return [gate.matrix.get(_KINDS[args.kind], args.name)]
    found, hints = [], []
    for kind in _KINDS.values():
        try:
            found.append(gate.matrix.get(kind, args.name))
        except NotFound as error:
            hints.append(error.hint)
    if not found:
        hint = next((hint for hint in hints if hint.startswith("did you mean")), "")
        what = f"there is no entry, waiver or target {args.name!r}"
        raise NotFound(what, field="name", value=args.name, hint=hint)
    return found


def log(args: argparse.Namespace, gate: Service) -> int:
    """``matrix log``."""
    if args.revision is not None:
        return _show_revision(args, gate)
    found = collect(
        gate.matrix.list_revisions,
        args.limit,
        name=args.name,
        since=moment(args.since, "--since"),
        until=moment(args.until, "--until", end_of_day=True),
    )
    if args.format == "json":
        print_json([row.to_json() for row in found])
        return 0
    rows = [
        (row.number, seconds(row.made_at), row.author, row.action, row.count, row.reason)
        for row in found
    ]
    head = ("revision", "made", "author", "action", "documents", "reason")
    print_table(head, rows, empty="no revisions")
    return 0


def _show_revision(args: argparse.Namespace, gate: Service) -> int:
    row = gate.matrix.show_revision(args.revision)
    if args.format == "json":
        print_json(row.to_json())
        return 0
    print(f"revision {row.number}, {seconds(row.made_at)}, {row.author}: {row.reason}")
    print_changes(row.changes)
    return 0
