"""Run ``compatgate facts``: list, show and verify vendor facts; measure wheels."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement

from compatgate.catalog import browse, load_facts, open_library
from compatgate.catalog.checks import origins, verify
from compatgate.catalog.records import merge_records
from compatgate.catalog.sources import title
from compatgate.check.wheels import ProgressLines
from compatgate.cli.commands import Group
from compatgate.core.facts.records import Record
from compatgate.discovery.cache import default_wheel_folder
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.errors import BadInput, CompatgateError, NotFound, Unavailable
from compatgate.kit.cli.options import FORMAT
from compatgate.kit.cli.output import (
    list_fields,
    paint,
    print_answer,
    say,
    wants_colour,
    width_of,
    wrap,
)
from compatgate.kit.cli.parser import add_overlays
from compatgate.kit.cli.usage import action
from compatgate.kit.files import replacing

if TYPE_CHECKING:
    from compatgate.discovery.wheels.index import IndexFile, PackageIndex
    from compatgate.discovery.wheels.measure import MeasureOptions, Progress
    from compatgate.discovery.wheels.on_demand import WheelSources

_MEANING = {
    "published": "",
    "metadata": ", read from releases",
    "derived": ", derived from other facts: never deny",
}
_HEADING = ("package", "version")
_LONGEST_HOURS = 6.0


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


@action(
    "measure requirements, linked libraries and GPU code of wheels",
    """\
what: PKG==VERSION|WHEEL|URL ...  release (NAME==VERSION), wheel file or URL
--index URL ...  package index (default: the index of pip and uv); may be repeated
--platform {linux-x86_64,linux-aarch64,windows-x86_64,windows-aarch64}
    platform of the wheel (default: this machine, Linux)
--python X.Y    Python of the wheel (default: this Python, or the newest)
--all           measure every wheel of a release
--whole         read whole wheels and compare their SHA-256
--overlay FILE  add the records to this file of your own facts, for --facts FILE; one package a file
--no-cache      ignore the cache
--timeout SECONDS = 3600  timeout for each wheel, in seconds
""",
    add_overlays,
    FORMAT,
    epilog="""\
examples:
  compatgate facts measure xformers==0.0.32.post2
  compatgate facts measure torchvision==0.24.0 --platform linux-aarch64 --python 3.12
  compatgate facts measure ./flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl --format json
  compatgate facts measure https://example.com/x-1.0-py3-none-any.whl#sha256=...
  keep the record, for check --facts FILE and serve --facts FILE
    compatgate facts measure xformers==0.0.32.post2 --overlay xformers.yaml

Reads a wheel in ranges and never stores it. Compares its SHA-256 if the wheel is small, if most of
its bytes are needed, and with --whole; otherwise compares each member with the wheel's RECORD.

exit status: 0 all measured, 2 a wheel could not be measured
""",
    index={"default": None},
    timeout={"type": float},
)
def run_measure(args: argparse.Namespace) -> int:
    """Measure and print; return 0, or 2 when a wheel could not be measured."""
    from compatgate.discovery.wheels.index import read_index_settings
    from compatgate.discovery.wheels.measure import MeasureOptions, list_ptx_toolkits
    from compatgate.discovery.wheels.on_demand import WheelSources

    if not 0 < args.timeout <= _LONGEST_HOURS * 3600:
        hint = f"more than 0, at most {_LONGEST_HOURS * 3600:.0f}"
        raise BadInput("is not a time limit", field="--timeout", value=args.timeout, hint=hint)
    facts = load_facts(args.facts)
    options = MeasureOptions(
        toolkits=list_ptx_toolkits(facts.arch),
        cache=None if args.no_cache else default_wheel_folder(),
        whole=args.whole,
    )
    places = None if args.index else facts.wheel_places
    sources = WheelSources(tuple(args.index or read_index_settings()), places=places)
    failed = 0
    with ProgressLines(members=True) as progress:
        for what in args.what:
            try:
                for record in _measure(what, args, sources, options, progress):
                    if args.format == "json":
                        print(json.dumps(record.to_json()), flush=True)
                    else:
                        heading = f"{record.package} {record.version}"
                        print(format_record(heading, record.to_json(), _HEADING), flush=True)
                        if not record.libraries and not record.unread:
                            print("  has no GPU code and links no GPU library", flush=True)
                    if args.overlay:
                        _keep(record, args.overlay)
            except CompatgateError as error:
                failed += 1
                progress.say(f"error: {error.detail}")
    if failed and len(args.what) > 1:
        say(f"{failed} of {len(args.what)} could not be measured")
    return 2 if failed else 0


def _measure(
    what: str,
    args: argparse.Namespace,
    sources: WheelSources,
    options: MeasureOptions,
    progress: Progress,
) -> Iterator[Record]:
    from compatgate.discovery.registry.transport import Transport
    from compatgate.discovery.wheels.index import PackageIndex
    from compatgate.discovery.wheels.measure import describe_url, measure_file, measure_path
    from compatgate.discovery.wheels.on_demand import WheelSource, known_places

    if "://" not in what and (what.endswith(".whl") or os.path.exists(what)):
        yield measure_path(what, options, progress)
        return
    with Deadline(args.timeout) as deadline:
        if "://" in what:
            if not what.startswith(("https://", "http://", "file://")):
                hint = "use https, http or file"
                raise BadInput("is not the URL of a wheel", field=what, hint=hint)
            with Transport(ImageOptions(), deadline) as transport:
                index = PackageIndex((), transport)
                yield measure_file(describe_url(what), index, transport, options, progress)
            return
        failed: CompatgateError | None = None
        # the places of a release, where each file is one source, then the index
        listed = []
        for place in known_places(*_read_release(what), _platform_of(args), sources):
            listed += [replace(place, files=(file,)) for file in place.files] or [place]
        for source in (*listed, WheelSource(title="the index")):
            try:
                with Transport(source.transport or ImageOptions(), deadline) as transport:
                    urls = (source.index,) if source.index else sources.indexes
                    index = PackageIndex(urls, transport, hosts=source.hosts, flat=source.flat)
                    for wheel in source.files or _choose(what, args, index):
                        yield measure_file(wheel, index, transport, options, progress)
                return
            except (NotFound, Unavailable) as error:
                failed = failed or error
        if failed:
            raise failed


def _platform_of(args: argparse.Namespace) -> Platform:
    wanted = args.platform or f"linux-{platform.machine()}"
    return Platform(
        "windows" if wanted.startswith("windows") else "linux",
        "aarch64" if wanted.endswith(("aarch64", "arm64")) else "x86_64",
        args.python or ".".join(platform.python_version_tuple()[:2]),
    )


def _choose(what: str, args: argparse.Namespace, index: PackageIndex) -> list[IndexFile]:
    from compatgate.discovery.wheels.index import choose_wheel

    files = index.wheels(*_read_release(what))
    place = _platform_of(args)
    chosen = files if args.all else choose_wheel(files, place)
    if not chosen and not args.all:
        others = ", ".join(sorted(file.name for file in files)[:5])
        hint = f"it has {others}; choose with --platform, or measure all with --all"
        raise NotFound(f"has no wheel for {place.os} {place.cpu}", field=what, hint=hint)
    return chosen


def _read_release(what: str) -> tuple[str, str]:
    try:
        requirement = Requirement(what)
    except InvalidRequirement:
        requirement = None
    pins = list(requirement.specifier) if requirement and not requirement.url else []
    if requirement is None or len(pins) != 1 or pins[0].operator != "==" or "*" in pins[0].version:
        hint = "like torchvision==0.24.0, a wheel's file or its URL"
        raise BadInput("is not a release of a package", field=what, hint=hint)
    return requirement.name, pins[0].version


def _keep(record: Record, path: str) -> None:
    try:
        text = merge_records(path, record.package, [record])
        with replacing(path, 0o644) as file:
            file.write(text.encode())
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise BadInput(what, field="--overlay", value=path) from None


run = Group(
    {
        "list": _list,
        "show": _show,
        "verify": _verify,
        "measure": run_measure,
        "diff": "cli.facts_diff:run",
    },
    epilog="""\
exit status: 0 verified or measured, 1 verify found problems, 2 bad input, or not all measured;
for diff see its help
""",
)
