"""Find releases and wheels on a package index that the facts lack, and write them for review.

Run it from a checkout: ``.venv/bin/python scripts/refresh_facts.py --check``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from refresh import (
    UNSTATED_BY_INDEX,
    Bounds,
    Listing,
    News,
    Survey,
    choose_subjects,
    list_subjects,
    survey,
)
from refresh.index import DEFAULT_LIMIT
from refresh.survey import Folder

from compatgate.catalog import load_facts, open_library
from compatgate.check.wheels import ProgressLines
from compatgate.core.facts import Facts
from compatgate.discovery.cache import default_wheel_folder
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.discovery.registry.transport import Transport
from compatgate.discovery.wheels.index import IndexFile, PackageIndex, read_index_settings
from compatgate.discovery.wheels.measure import (
    MeasureOptions,
    Progress,
    list_ptx_toolkits,
    measure_file,
)
from compatgate.errors import BadInput, CompatgateError, Unavailable
from compatgate.kit.cli.options import FORMAT
from compatgate.kit.cli.output import strip_controls
from compatgate.kit.cli.parser import add_overlays
from compatgate.kit.cli.usage import add_usage

_EXAMPLES = """\
examples:
  scripts/refresh_facts.py --check
  scripts/refresh_facts.py --out ./new-facts
  scripts/refresh_facts.py torch xformers==0.0.36 --out ./new-facts
  scripts/refresh_facts.py --since 2026-10-01 --limit 0 --check --format json
  compatgate check --stack torch=2.16.0 --pool gpu=L4,driver=580.95.05 --facts ./new-facts

Without a name, refreshes frameworks, cuDNN, NCCL, toolkits, and packages with records. A release
is new if it is newer than the newest known release or was uploaded after it. Additions to known
releases also count: another Python, a rebuild, a build for another CUDA. PKG==VERSION asks for one
release of any age. Pre-releases and yanked wheels do not count.

The files in --out are overlays: try them with --facts or $COMPATGATE_FACTS, compare them with
"compatgate facts diff shipped DIR". A second run continues where the first one stopped.

exit status: 0 done, or no news; 1 --check found news; 2 bad input, or the index or a measurement
failed
"""
_PLATFORMS = ("linux-x86_64", "linux-aarch64", "windows-x86_64", "windows-aarch64")
_LONGEST_HOURS = 24.0
_TRIES = 3
"""Failures in a row after which to give up an index that never answered."""


def main(argv: Sequence[str] | None = None) -> int:
    """Refresh what the arguments name; return the exit status."""
    try:
        parser = argparse.ArgumentParser(
            description=__doc__,
            epilog=_EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_arguments(parser)
        add_overlays(parser)
        add_usage(parser, FORMAT)
        return run(parser.parse_args(argv))
    except CompatgateError as error:
        print(strip_controls(f"error: {error.detail}"), file=sys.stderr)
        return 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: packages, index and folder."""
    parser.add_argument(
        "what",
        nargs="*",
        metavar="PKG[==VERSION]",
        help="packages (default: all known ones)",
    )
    parser.add_argument("--out", metavar="DIR", help="write the files for review to this folder")
    parser.add_argument(
        "--check", action="store_true", help="only check; exit with 1 if there are new releases"
    )
    parser.add_argument(
        "--index",
        metavar="URL",
        action="append",
        help="package index (default: the index of pip and uv); may be repeated",
    )
    parser.add_argument(
        "--offline",
        metavar="DIR",
        help="use only this folder: PKG/index.json (PEP 691), with the wheels or their metadata "
        "(PEP 658)",
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=int,
        default=DEFAULT_LIMIT,
        help=f"maximum number of new releases per package; 0: all (default: {DEFAULT_LIMIT})",
    )
    parser.add_argument(
        "--since",
        metavar="DATE|DAYS",
        help="include all uploads since a date or age: 2026-10-01 or 30d",
    )
    parser.add_argument(
        "--metadata-only",
        action="store_true",
        help="write metadata only; measure no wheels",
    )
    parser.add_argument("--pre", action="store_true", help="include pre-releases")
    parser.add_argument("--yanked", action="store_true", help="include yanked wheels")
    parser.add_argument(
        "--platform",
        choices=_PLATFORMS,
        action="append",
        help="platform to measure (default: Linux on x86_64 and aarch64); may be repeated",
    )
    parser.add_argument("--no-cache", action="store_true", help="ignore the cache")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=3600.0,
        help="timeout in seconds (default: 3600)",
    )


def run(args: argparse.Namespace) -> int:
    """Compare with the index, measure and write; return the exit status.

    Raises:
        BadInput: an option is malformed.
    """
    bounds, names, indexes = _bounds(args), _names(args.what), _indexes(args)
    if not args.check and not args.out:
        hint = "name a folder with --out, or use --check"
        raise BadInput("no output folder is given", field="--out", hint=hint)
    folder = None if args.check else Folder(args.out, args.facts)
    library, facts = open_library(args.facts), load_facts(args.facts)
    things = choose_subjects(list_subjects(library, facts), names, facts)
    report = _Report(args.format)
    progress = ProgressLines(members=True)
    with _open_index(indexes, args.timeout) as (index, transport):
        writer = _Writer(args, facts, index, transport, progress)
        for found in survey(things, Listing(index, transport), _bounds_by_fact(bounds, things)):
            report.add(found, progress)
            if report.is_hopeless:
                _say(progress, "the index does not answer: skipped the rest")
                break
            if folder is not None and found.news:
                report.failed += writer.write(found.news, folder)
        if folder is not None:
            folder.check()
    report.print(folder.written if folder else ())
    if report.failed:
        return 2
    return 1 if args.check and report.news else 0


# --- options -------------------------------------------------------------------------------


def _names(what: Sequence[str]) -> list[str]:
    return [_requirement(text)[0] for text in what]


def _requirement(text: str) -> tuple[str, str | None]:
    """Split ``PKG`` or ``PKG==VERSION``."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        requirement = None
    pins = list(requirement.specifier) if requirement else []
    exact = len(pins) == 1 and pins[0].operator == "==" and "*" not in pins[0].version
    if requirement is None or requirement.url or requirement.marker or (pins and not exact):
        hint = "like xformers or xformers==0.0.36"
        raise BadInput("is not a package or a release", field=text, hint=hint)
    return str(canonicalize_name(requirement.name)), pins[0].version if pins else None


def _bounds(args: argparse.Namespace) -> Bounds:
    if args.limit < 0:
        raise BadInput("must be 0 (all releases) or more", field="--limit", value=args.limit)
    if not 0 < args.timeout <= _LONGEST_HOURS * 3600:
        hint = f"more than 0, at most {_LONGEST_HOURS * 3600:.0f}"
        raise BadInput("is not a time limit", field="--timeout", value=args.timeout, hint=hint)
    named: dict[str, frozenset[str]] = {}
    for text in args.what:
        name, version = _requirement(text)
        if version:
            named[name] = named.get(name, frozenset()) | {version}
    platforms = [
        Platform(
            "windows" if name.startswith("windows") else "linux",
            "aarch64" if name.endswith("aarch64") else "x86_64",
        )
        for name in args.platform or _PLATFORMS[:2]
    ]
    return Bounds(named, args.limit, _since(args.since), args.pre, args.yanked, platforms)


def _bounds_by_fact(bounds: Bounds, things: Sequence[Any]) -> Bounds:
    """Assign versions asked for by distribution to the framework or library they belong to."""
    named = dict(bounds.named)
    for thing in things:
        versions = [v for name in thing.names for v in bounds.named.get(name, ())]
        if versions:
            named |= dict.fromkeys(thing.names, frozenset(versions))
    return replace(bounds, named=named)


def _since(text: str | None) -> str:
    if text is None:
        return ""
    today = datetime.now(UTC).date()
    try:
        if text.endswith("d") and text[:-1].isdigit():
            return (today - timedelta(days=int(text[:-1]))).isoformat()
        return date.fromisoformat(text).isoformat()
    except (ValueError, OverflowError):
        hint = "a date such as 2026-10-01, or a number of days such as 30d"
        raise BadInput("is not a date", field="--since", value=text, hint=hint) from None


def _indexes(args: argparse.Namespace) -> tuple[str, ...]:

    if not args.offline:
        return tuple(args.index or read_index_settings())
    if args.index:
        raise BadInput("cannot be combined", field="--offline and --index")
    if not os.path.isdir(args.offline):
        hint = "a folder with PKG/index.json"
        raise BadInput(
            "the folder does not exist", field="--offline", value=args.offline, hint=hint
        )
    return (Path(args.offline).resolve().as_uri(),)


@contextmanager
def _open_index(indexes: Sequence[str], timeout: float) -> Iterator[tuple[PackageIndex, Transport]]:
    with Deadline(timeout) as deadline, Transport(ImageOptions(), deadline) as transport:
        yield PackageIndex(indexes, transport), transport


# --- measuring and writing -----------------------------------------------------------------


class _Writer:
    """A writer that measures new wheels and writes news to a folder at once."""

    def __init__(
        self,
        args: argparse.Namespace,
        facts: Facts,
        index: PackageIndex,
        transport: Transport,
        progress: Progress,
    ) -> None:

        cache = None if args.no_cache else default_wheel_folder()
        self._metadata_only = bool(args.metadata_only)
        self._options = MeasureOptions(toolkits=list_ptx_toolkits(facts.arch), cache=cache)
        self._index, self._transport, self._progress = index, transport, progress

    def write(self, found: Sequence[News], folder: Folder) -> int:
        """Write news; return the number of wheels that could not be measured."""
        failed = 0
        for news in found:
            if news.entry is not None:
                folder.add_entry(news)
            for wheel in () if self._metadata_only else news.wheels:
                if not folder.has(news.package, wheel.name, wheel.sha256):
                    failed += not self._measure(wheel, folder)
        return failed

    def _measure(self, wheel: IndexFile, folder: Folder) -> bool:

        try:
            record = measure_file(
                wheel, self._index, self._transport, self._options, self._progress
            )
        except CompatgateError as error:
            _say(self._progress, f"error: {error.detail}")
            return False
        folder.add_record(replace(record, source=_origin(wheel)))
        return True


def _origin(wheel: IndexFile) -> str:
    """Describe where and when a wheel was read."""
    day = datetime.now(UTC).date().isoformat()
    return f"{wheel.name} on the package index, measured {day}"


def _say(progress: Any, text: str) -> None:
    progress.say(strip_controls(text))


# --- reporting -----------------------------------------------------------------------------


class _Report:
    """A report of news, printed at once (text) or at the end (JSON)."""

    def __init__(self, form: str) -> None:
        self._form = form
        self.news: list[News] = []
        self.left_out: dict[str, int] = {}
        self.problems: list[str] = []
        self.failed = 0
        self._answered = 0
        self._unreached = 0

    @property
    def is_hopeless(self) -> bool:
        """Tell whether the index has not answered after enough tries."""
        return not self._answered and self._unreached >= _TRIES

    def add(self, found: Survey, progress: Any) -> None:
        """Add the result of one comparison."""
        unreached = isinstance(found.problem, Unavailable)
        self._unreached += unreached
        self._answered += not unreached
        if found.problem is not None:
            self.failed += 1
            self.problems.append(found.problem.detail)
            _say(progress, f"error: {found.problem.detail}")
        self.news += found.news
        if found.left_out:
            self.left_out[found.facts] = found.left_out
        if self._form == "text":
            for news in found.news:
                print(strip_controls(_line(news)), flush=True)

    def print(self, written: Sequence[str]) -> None:
        """Print the rest of the report."""
        if self._form == "json":
            document = {
                "new": [news.to_json() for news in self.news],
                "left_out": self.left_out,
                "not_told": UNSTATED_BY_INDEX.split(", ")
                if any(n.entry for n in self.news)
                else [],
                "written": list(written),
                "problems": self.problems,
            }
            print(json.dumps(document))
            return
        if not self.news and not self.failed:
            print("no news")
        for path in written:
            print(strip_controls(f"wrote {path}"))
        if written and any(news.entry for news in self.news):
            print(f"the index does not state: {UNSTATED_BY_INDEX}")
        for facts, count in self.left_out.items():
            text = (
                f"{facts}: {count} more new release{'s' if count > 1 else ''} (--limit 0 for all)"
            )
            print(text, file=sys.stderr)


def _line(news: News) -> str:
    day = f", {news.uploaded[:10]}" if news.uploaded else ""
    wheels = "".join(f"\n  {wheel.name}" for wheel in news.wheels)
    return f"{news.package} {news.version}: {news.what}{day}{wheels}"


if __name__ == "__main__":
    sys.exit(main())
