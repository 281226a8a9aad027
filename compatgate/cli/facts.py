"""Run ``compatgate facts``: list, show and verify vendor facts and measured wheels."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from compatgate.catalog import browse, open_library
from compatgate.catalog.browse import keyed_lists
from compatgate.catalog.sources import title
from compatgate.cli import facts_diff, facts_measure
from compatgate.cli.commands import Group
from compatgate.kit.cli.options import FORMAT
from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.parser import add_overlays
from compatgate.kit.cli.terminal import paint, wants_colour, width_of, wrap, wrap_beside
from compatgate.kit.cli.usage import action

# --- list ----------------------------------------------------------------------------------


@action("list", "show tables, record counts, digest and overlays", add_overlays, FORMAT)
def _list(args: argparse.Namespace) -> int:
    library = open_library(args.facts)
    records = {}
    for name in library.names:
        document = library.document(name)
        records[title(name)] = {part: len(document[part]) for part in keyed_lists(name, document)}
    overlays = [overlay.label for overlay in library.overlays]
    if args.format == "json":
        print_json({"digest": library.digest, "overlays": overlays, "tables": records})
        return 0
    packages = {title(name) for name in library.names if name.startswith("packages/")}
    tables = {name: counts for name, counts in records.items() if name not in packages}
    measured = sum(records[name].get("records", 0) for name in packages)
    tables["packages/"] = {"packages": len(packages), "records": measured}
    width = max(map(len, tables))
    for name, counts in tables.items():
        text = ", ".join(f"{count} {part.replace('_', ' ')}" for part, count in counts.items())
        print(f"{name:<{width}}  {text}")
    print(f"\n{'digest':<{width}}  {library.digest}")
    print(f"{'overlays':<{width}}  {', '.join(overlays) or 'none'}")
    return 0


# --- show ----------------------------------------------------------------------------------


@action(
    "show",
    "show complete records with notes and sources",
    """\
TABLE  table, for example cuda_driver, torch or gpus
[KEY]  record, for example 12.4.1, 2.4.1 or H100 (default: list all)
""",
    add_overlays,
    FORMAT,
)
def _show(args: argparse.Namespace) -> int:
    library = open_library(args.facts)
    source = browse.find_source(args.table, library.names)
    document = library.document(source)
    if args.key is None:
        return _show_names(source, document, args.format)
    found = browse.find_records(source, document, args.key)
    if args.format == "json":
        print_json(found)
        return 0
    keys = browse.keyed_lists(source, document)
    blocks = [
        _record(f"{part} {browse.record_name(record, keys[part])}", record, keys[part])
        for part, records in found.items()
        for record in records
    ]
    print("\n\n".join(blocks))
    return 0


def _show_names(source: str, document: dict[str, Any], form: str) -> int:
    names = {
        part: [browse.record_name(record, key) for record in document[part]]
        for part, key in browse.keyed_lists(source, document).items()
    }
    if form == "json":
        print_json(names)
        return 0
    width = width_of(sys.stdout)
    for part, spoken in names.items():
        print(_paint_bold(part))
        line = "  ".join(f"'{name}'" if " " in name else name for name in spoken)
        print("\n".join(f"  {row}" for row in wrap(line, width - 2)))
    return 0


def _record(title: str, record: dict[str, Any], key: Sequence[str]) -> str:
    fields = {name: value for name, value in record.items() if name not in key}
    return "\n".join([_paint_bold(title), *_fields(fields, indent=2)])


def _fields(fields: dict[str, Any], indent: int) -> Iterator[str]:
    """Yield aligned names and values; skip unknown values."""
    known = {str(name): value for name, value in fields.items() if value is not None}
    plain = [name for name, value in known.items() if not _is_nested(value)]
    width = max(map(len, plain), default=0)
    for name, value in known.items():
        if not _is_nested(value):
            label = f"{' ' * indent}{name:<{width}}  "
            yield from wrap_beside(label, _text(value), width_of(sys.stdout))
            continue
        yield f"{' ' * indent}{name}"
        for part in value if isinstance(value, list) else [value]:
            first, *rest = list(_fields(part, indent + 4)) or [""]
            yield f"{' ' * (indent + 2)}{'-' if isinstance(value, list) else ' '} {first.strip()}"
            yield from rest


def _is_nested(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, list) and any(isinstance(part, dict) for part in value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        separator = "; " if any(" " in str(part) for part in value) else ", "
        return separator.join(map(str, value)) or "none"
    return "none" if value == {} else str(value)


def _paint_bold(text: str) -> str:
    return paint(text, "bold", colour=wants_colour(sys.stdout))


# --- verify --------------------------------------------------------------------------------


_MEANING = {
    "published": "",
    "metadata": ", read from releases",
    "derived": ", derived from other facts: never deny",
}


@action("verify", "check the facts against each other", add_overlays, FORMAT)
def _verify(args: argparse.Namespace) -> int:
    from compatgate.catalog.checks import origins, verify

    problems = verify(args.facts)
    told = origins(args.facts)
    if args.format == "json":
        rows = [{"check": p.check, "subject": p.subject, "message": p.message} for p in problems]
        where = {"measured": told.measured, **told.statements}
        print_json({"problems": rows, "origins": where})
    elif problems:
        print("\n".join(map(str, problems)))
        print(f"\n{len(problems)} problem{'s' if len(problems) > 1 else ''}", file=sys.stderr)
    else:
        print("the facts are consistent")
        print(f"measured   {told.measured:>5} wheels, each with its SHA-256")
        for name, count in told.statements.items():
            print(f"{name:<10} {count:>5} statements{_MEANING[name]}")
    return 1 if problems else 0


run = Group(
    (_list, _show, _verify, facts_measure.run, facts_diff.run),
    epilog="""\
examples:
  compatgate facts list
  compatgate facts show cuda_driver 12.4.1
  compatgate facts show torch 2.4.1 --format json
  compatgate facts show gpus H100
  compatgate facts verify --facts ./our-facts
  compatgate facts measure xformers==0.0.32.post2 --format json
  compatgate facts diff shipped ./new-facts

exit status: 0 verified or measured, 1 verify found problems, 2 bad input, or not all measured;
for diff see its help
""",
)
