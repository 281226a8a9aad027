"""Run ``compatgate facts``: list, show and verify vendor facts and measured wheels."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from compatgate.catalog import browse, open_library
from compatgate.catalog.checks import origins, verify
from compatgate.catalog.sources import title
from compatgate.cli.commands import Group
from compatgate.kit.cli.options import FORMAT
from compatgate.kit.cli.output import list_fields, print_answer
from compatgate.kit.cli.parser import add_overlays
from compatgate.kit.cli.terminal import paint, say, wants_colour, width_of, wrap
from compatgate.kit.cli.usage import action

_MEANING = {
    "published": "",
    "metadata": ", read from releases",
    "derived": ", derived from other facts: never deny",
}


@action("show tables, record counts, digest and overlays", add_overlays, FORMAT)
def _list(args: argparse.Namespace) -> int:
    library = open_library(args.facts)
    records = {}
    for name in library.names:
        document = library.document(name)
        parts = browse.keyed_lists(name, document)
        records[title(name)] = {part: len(document[part]) for part in parts}
    overlays = [overlay.label for overlay in library.overlays]
    packages = {title(name) for name in library.names if name.startswith("packages/")}
    tables = {name: counts for name, counts in records.items() if name not in packages}
    measured = sum(records[name].get("records", 0) for name in packages)
    tables["packages/"] = {"packages": len(packages), "records": measured}
    width = max(map(len, tables))
    lines = {
        name: ", ".join(f"{count} {part.replace('_', ' ')}" for part, count in counts.items())
        for name, counts in tables.items()
    }
    origin = {"digest": library.digest, "overlays": ", ".join(overlays) or "none"}
    text = "\n\n".join(
        "\n".join(f"{name:<{width}}  {value}" for name, value in one.items())
        for one in (lines, origin)
    )
    answer = {"digest": library.digest, "overlays": overlays, "tables": records}
    return print_answer(args.format, answer, text)


@action(
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
    keys = browse.keyed_lists(source, document)
    if args.key is None:
        names = {
            part: [browse.record_name(record, key) for record in document[part]]
            for part, key in keys.items()
        }
        lines = []
        for part, of_part in names.items():
            line = "  ".join(f"'{name}'" if " " in name else name for name in of_part)
            rows = wrap(line, width_of(sys.stdout) - 2)
            lines += [_paint_bold(part), *(f"  {row}" for row in rows)]
        return print_answer(args.format, names, "\n".join(lines))
    found = browse.find_records(source, document, args.key)
    return print_answer(
        args.format,
        found,
        lambda: "\n\n".join(
            format_record(f"{part} {browse.record_name(record, keys[part])}", record, keys[part])
            for part, records in found.items()
            for record in records
        ),
    )


def format_record(heading: str, record: Mapping[str, Any], key: Sequence[str] = ()) -> str:
    """Return a record below its heading, without what names it."""
    fields = {name: value for name, value in record.items() if name not in key}
    return "\n".join([_paint_bold(heading), *list_fields(fields, width_of(sys.stdout), 2)])


def _paint_bold(text: str) -> str:
    return paint(text, "bold", colour=wants_colour(sys.stdout))


@action("check the facts against each other", add_overlays, FORMAT)
def _verify(args: argparse.Namespace) -> int:
    problems, known = verify(args.facts), origins(args.facts)
    rows = [{"check": p.check, "subject": p.subject, "message": p.message} for p in problems]
    answer = {"problems": rows, "origins": {"measured": known.measured, **known.statements}}
    lines = [*map(str, problems)] or [
        "the facts are consistent",
        f"measured   {known.measured:>5} wheels, each with its SHA-256",
        *(f"{name:<10} {n:>5} statements{_MEANING[name]}" for name, n in known.statements.items()),
    ]
    print_answer(args.format, answer, "\n".join(lines))
    if problems and args.format != "json":
        say(f"\n{len(problems)} problem{'s' if len(problems) > 1 else ''}")
    return 1 if problems else 0


run = Group(
    {
        "list": _list,
        "show": _show,
        "verify": _verify,
        "measure": "cli.facts_measure:run",
        "diff": "cli.facts_diff:run",
    },
    epilog="""\
exit status: 0 verified or measured, 1 verify found problems, 2 bad input, or not all measured;
for diff see its help
""",
)
