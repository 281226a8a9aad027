"""Find new releases of cuDNN, NCCL and toolkits on an index."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from packaging.version import Version

from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.wheels.index import IndexFile
from refresh.index import Bounds, Listing, News, first_upload, is_for, last_upload

_X86 = Platform()
_MAJOR = re.compile(r"-cu(\d+)$")
Record = dict[str, Any]


class LibraryReader:
    """A reader of one NVIDIA library on an index: its releases, and the CUDA of each package.

    Args:
        source: fact file of the library: ``cudnn``, ``nccl`` or ``cuda_driver``.
        document: content of the file; its ``distributions`` are read.
        listing: listing of the index.
    """

    def __init__(self, source: str, document: Record, listing: Listing) -> None:
        self._source = source
        self._names: list[str] = list(document.get("distributions", ()))
        key = "cuda" if source == "cuda_driver" else "version"
        self._known = {_title(record[key]): record for record in document["releases"]}
        self._listing = listing

    def news(self, bounds: Bounds) -> tuple[list[News], int]:
        """Find unknown releases and builds, and count the releases beyond the limit.

        Raises:
            CompatgateError: the index does not answer, or its answer is malformed.
        """
        offered = self._offered(bounds)
        fresh = self._fresh(offered, bounds)
        kept = bounds.within_limit(fresh)
        found = [self._release(title, offered[title], "release", "new release") for title in kept]
        found += self._added(offered, bounds)
        return found, len(fresh) - len(kept)

    def _offered(self, bounds: Bounds) -> dict[str, dict[str, list[tuple[Version, IndexFile]]]]:
        """Group wheels by release, then by package."""
        found: dict[str, dict[str, list[tuple[Version, IndexFile]]]] = {}
        for name in self._names:
            for version, wheels in self._listing.releases(name).items():
                for wheel in wheels:
                    if bounds.allows(wheel, version):
                        packages = found.setdefault(_title(version.public), {})
                        packages.setdefault(name, []).append((version, wheel))
        return found

    def _fresh(
        self, offered: dict[str, dict[str, list[tuple[Version, IndexFile]]]], bounds: Bounds
    ) -> list[str]:
        unknown = [title for title in offered if title not in self._known]
        if any(bounds.named.get(name) for name in (self._source, *self._names)):
            return sorted(
                (t for t in unknown if self._is_asked(t, bounds)), key=Version, reverse=True
            )
        newest = max(map(Version, self._known), default=Version("0"))
        boundary = last_upload(w for t in offered if t in self._known for w in _wheels(offered[t]))
        new = [
            title
            for title in unknown
            if bounds.is_new(
                Version(title), first_upload(_wheels(offered[title])), newest, boundary
            )
        ]
        return sorted(new, key=Version, reverse=True)

    def _is_asked(self, title: str, bounds: Bounds) -> bool:
        asked = [bounds.named.get(name, frozenset()) for name in (self._source, *self._names)]
        wanted = {_title(text) for texts in asked for text in texts}
        return not wanted or title in wanted

    def _added(
        self, offered: dict[str, dict[str, list[tuple[Version, IndexFile]]]], bounds: Bounds
    ) -> list[News]:
        """Find packages of known releases for another CUDA."""
        found = []
        for title, packages in offered.items():
            wheels = (self._known.get(title) or {}).get("wheels")
            if not isinstance(wheels, dict) or not self._is_asked(title, bounds):
                continue
            more = [
                name
                for name, rows in packages.items()
                if not wheels.get(_label(name)) and any(is_for(w, _X86) for _, w in rows)
            ]
            if more:
                what = f"package for another CUDA: {', '.join(more)}"
                found.append(self._release(title, packages, "build", what))
        return found

    def _release(
        self,
        title: str,
        packages: dict[str, list[tuple[Version, IndexFile]]],
        kind: Any,
        what: str,
    ) -> News:
        package = next(iter(packages))
        version = str(max(version for version, _ in packages[package]))
        uploaded = first_upload(_wheels(packages))
        if self._source == "cuda_driver":
            what = "new toolkit; the index does not state its driver minimums: add it by hand"
            return News(package, version, kind, what, "", uploaded=uploaded)
        newest = {name: str(max(v for v, _ in rows)) for name, rows in packages.items()}
        entry = self._entry(title, newest)
        if kind == "build":
            entry = _changed_builds(entry, self._known[title])
        return News(package, version, kind, what, self._source, entry=entry, uploaded=uploaded)

    def _entry(self, title: str, newest: dict[str, str]) -> Record:
        """Return a record; values that the index does not state are null, as in the facts."""
        labels = {_label(name): newest.get(name) for name in self._names}
        majors = sorted(int(_label(name).removeprefix("cu")) for name in newest)
        release = Version(title).release
        source = [f"package index versions of {', '.join(self._names)}"]
        if self._source == "nccl":
            return {
                "version": title,
                "tag": None,
                "integer": release[0] * 10000 + release[1] * 100 + release[2],
                "tag_commit_date": None,
                "wheels": labels,
                "cuda_majors_of_wheels": majors,
                "default_gencode_by_build_cuda": None,
                "min_cc_stated": None,
                "source": source,
                "confidence": "metadata",
                "deb_rpm_cuda_suffixes_seen": None,
                "min_cc_derived": None,
            }
        return {
            "version": title,
            "integer": release[0] * 10000 + release[1] * 100 + release[2],
            "builds": sorted(set(newest.values()), key=Version),
            "cuda_majors": majors,
            "redist_cuda_builds": None,
            "cuda_range_nixpkgs": None,
            "seen_in_nvidia_cuda_images": None,
            "min_cc": None,
            "min_cc_confidence": None,
            "min_cc_source": None,
            "support_matrix": None,
            "wheels": labels,
            "source": source,
            "confidence": "metadata",
            "min_driver_linux_by_cuda_major": None,
        }


_BUILDS = ("version", "wheels", "cuda_majors", "cuda_majors_of_wheels")


def _changed_builds(entry: Record, known: Record) -> Record:
    """Return the fields that a package for another CUDA changes in a known record."""
    update = {name: value for name, value in entry.items() if name in _BUILDS}
    update["version"] = known["version"]
    for name in ("cuda_majors", "cuda_majors_of_wheels"):
        if name in update:
            update[name] = sorted({*update[name], *known.get(name, ())})
    return update


def _wheels(packages: dict[str, list[tuple[Version, IndexFile]]]) -> Sequence[IndexFile]:
    return [wheel for rows in packages.values() for _, wheel in rows]


def _title(version: str) -> str:
    """Return the three numbers that name a release; builds (``9.11.0.98``) have no record."""
    return ".".join(map(str, (*Version(version).release, 0, 0)[:3]))


def _label(package: str) -> str:
    found = _MAJOR.search(package)
    return f"cu{found[1]}" if found else package
