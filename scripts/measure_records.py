"""Measures wheels of the package index, one at a time, and writes the records that ship.

Each argument is a package, for its newest releases, or ``package==version``. Of each release one
wheel for Linux on x86_64 is measured, and of the newest one on aarch64, too; with ``--windows`` the
one for Windows instead. Nothing is kept but the records (``matrix/facts/packages/``). Exit status 1
where one could not be measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from compatgate.catalog import load_facts, sources
from compatgate.catalog.records import merge_records
from compatgate.check.wheels import ProgressLines
from compatgate.core.facts.records import Record
from compatgate.discovery.cache import default_wheel_folder
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.discovery.registry.transport import Transport
from compatgate.discovery.wheels.index import PackageIndex, choose_wheel, read_index_settings
from compatgate.discovery.wheels.measure import MeasureOptions, list_ptx_toolkits, measure_file
from compatgate.errors import CompatgateError

SECONDS = 3600.0


def main() -> int:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", metavar="PKG[==VERSION]")
    parser.add_argument("--releases", type=int, default=2, help="of a package without version (2)")
    parser.add_argument("--python", default="3.12", help="whose wheels are measured (3.12)")
    parser.add_argument("--windows", action="store_true", help="measure wheels for Windows")
    parser.add_argument("--no-cache", action="store_true", help="measure anew")
    args = parser.parse_args()
    failed = 0
    for what in args.what:
        name, _, version = what.partition("==")
        try:
            tag = "win_amd64" if args.windows else "linux"
            versions = [version] if version else newest(name, args.releases, tag)
        except CompatgateError as error:
            print(f"{what}: {error.detail}", file=sys.stderr)
            failed += 1
            continue
        for number, release in enumerate(versions):
            both = not number and not args.windows
            for cpu in ("x86_64", "aarch64") if both else ("x86_64",):
                try:
                    place = Platform("windows" if args.windows else "linux", cpu, args.python)
                    measured = measure(name, release, place, cached=not args.no_cache)
                except CompatgateError as error:
                    print(f"{name}=={release} {cpu}: {error.detail}", file=sys.stderr)
                    failed += 1
                    continue
                path = sources.source_path(f"packages/{name}")
                text = merge_records(path, name, measured)
                Path(path).write_text(text, encoding="utf-8")
    return 1 if failed else 0


def newest(name: str, count: int, tag: str) -> list[str]:
    """Return the newest final releases with wheels for any platform, or for a tag."""
    with Deadline(120) as deadline, Transport(ImageOptions(), deadline) as transport:
        url = read_index_settings()[0]
        files = PackageIndex([url], transport).files(url, name)
    versions = set()
    for file in files:
        try:
            version = parse_wheel_filename(file.name)[1]
        except InvalidWheelFilename:
            continue
        fits = "-any.whl" in file.name or tag in file.name
        if fits and not version.is_prerelease:
            versions.add(version)
    return [str(v) for v in sorted(versions, reverse=True)[:count]]


def measure(name: str, version: str, platform: Platform, *, cached: bool) -> list[Record]:
    """Measure the wheel of a release for a platform; nothing where there is none."""
    options = MeasureOptions(
        toolkits=list_ptx_toolkits(load_facts().arch),
        cache=default_wheel_folder() if cached else None,
        whole=True,
    )
    with Deadline(SECONDS) as deadline, Transport(ImageOptions(), deadline) as transport:
        index = PackageIndex(read_index_settings()[:1], transport)
        chosen = choose_wheel(index.wheels(name, str(Version(version))), platform)
        return [measure_file(w, index, transport, options, ProgressLines()) for w in chosen]


if __name__ == "__main__":
    sys.exit(main())
