"""Compare the facts with an index, and write news for review.

A refresh writes a folder of overlays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import yaml
from msgspec import Struct
from packaging.utils import canonicalize_name

from compatgate.catalog import open_library, records, sources
from compatgate.catalog.library import Library
from compatgate.catalog.overlay import find_overlays
from compatgate.catalog.sources import title
from compatgate.core.facts import Facts
from compatgate.core.facts.records import Record
from compatgate.errors import BadInput, CompatgateError, NotFound
from compatgate.refresh.frameworks import FrameworkReader, recipe_of
from compatgate.refresh.index import Bounds, Listing, News
from compatgate.refresh.libraries import LibraryReader
from compatgate.refresh.packages import news_of_package

LIBRARIES = ("cudnn", "nccl", "cuda_driver")
NewsAndOmitted = tuple[list[News], int]
FindNews = Callable[[Listing, Bounds], NewsAndOmitted]


class RefreshSubject(Struct, frozen=True):
    """A framework, library or package that a refresh compares with the index.

    Attributes:
        facts: fact file, ``packages/xformers``.
        names: names that a person may use, distributions included.
        distributions: distributions to read on the index.
        look: function that finds news.
        has_wheels: whether the index is expected to have wheels; a source-only package has none.
    """

    facts: str
    names: frozenset[str]
    distributions: tuple[str, ...]
    look: FindNews
    has_wheels: bool = True


class Survey(Struct, frozen=True):
    """Result of the comparison for one framework, library or package.

    Attributes:
        left_out: number of new releases beyond the limit.
        problem: why the comparison failed; None: it did not fail.
    """

    facts: str
    news: tuple[News, ...] = ()
    left_out: int = 0
    problem: CompatgateError | None = None


def list_subjects(library: Library, facts: Facts) -> list[RefreshSubject]:
    """List what a refresh compares: frameworks and libraries, then packages with records."""
    found = []
    for name in (*(n for n in library.names if n.startswith("frameworks/")), *LIBRARIES):
        one = _framework(name, library, facts) if "/" in name else _library(name, library)
        if one:
            found.append(one)
    found += [package(name, facts) for name in sorted(facts.recorded)]
    return found


def _framework(source: str, library: Library, facts: Facts) -> RefreshSubject | None:
    document = library.document(source)
    recipe = recipe_of(document)
    if recipe is None:
        return None

    def look(listing: Listing, bounds: Bounds) -> NewsAndOmitted:
        return FrameworkReader(document, recipe, listing, facts.packages).news(bounds)

    names = frozenset((document["component"], *recipe.names))
    return RefreshSubject(source, names, recipe.names, look)


def _library(source: str, library: Library) -> RefreshSubject | None:
    document = library.document(source)
    distributions = tuple(document.get("distributions", ()))

    def look(listing: Listing, bounds: Bounds) -> NewsAndOmitted:
        return LibraryReader(source, document, listing).news(bounds)

    names = frozenset((source, *distributions))
    return RefreshSubject(source, names, distributions, look) if distributions else None


def package(name: str, facts: Facts) -> RefreshSubject:
    """Describe a package, with or without records."""

    def look(listing: Listing, bounds: Bounds) -> NewsAndOmitted:
        return news_of_package(name, facts.records(name), listing.releases(name), bounds)

    has_wheels = bool(facts.records(name)) or name not in facts.recorded
    return RefreshSubject(f"packages/{name}", frozenset((name,)), (name,), look, has_wheels)


def choose_subjects(
    known: Sequence[RefreshSubject], names: Sequence[str], facts: Facts
) -> list[RefreshSubject]:
    """Choose by name; choose all without names, and treat unknown names as packages."""
    if not names:
        return list(known)
    found: dict[str, RefreshSubject] = {}
    for name in map(str, map(canonicalize_name, names)):
        named = [one for one in known if name in one.names or title(one.facts) == name]
        for one in named or [package(name, facts)]:
            found[one.facts] = one
    return list(found.values())


def survey(things: Sequence[RefreshSubject], listing: Listing, bounds: Bounds) -> Iterator[Survey]:
    """Compare each one with the index; a failure is a problem of that one alone."""
    for one in things:
        try:
            if not any(listing.releases(name) for name in one.distributions):
                if not one.has_wheels:
                    continue
                raise NotFound("the index has no wheels", field=", ".join(one.distributions))
            news, left_out = one.look(listing, bounds)
        except CompatgateError as error:
            yield Survey(one.facts, problem=error)
            continue
        yield Survey(one.facts, tuple(news), left_out)


_FORMS = {"cudnn": "facts/cudnn/v1", "nccl": "facts/nccl/v1"}
_WIDTH = 120


class Folder:
    """A folder of overlays with the layout of the shipped facts.

    Args:
        path: path of the folder; the first file creates it.
        overlays: overlays that apply before the written files.

    Raises:
        BadInput: the path is a file, or the folder of the shipped facts.
    """

    def __init__(self, path: str, overlays: Sequence[str] | None = None) -> None:
        self.path = path
        self._below = [overlay.path for overlay in find_overlays(overlays)]
        self.written: list[str] = []
        real, shipped = os.path.realpath(path), os.path.realpath(sources.facts_dir())
        if real == shipped or real.startswith(f"{shipped}{os.sep}"):
            hint = "name another folder, review the files, then copy them"
            raise BadInput("holds the shipped facts", field="--out", value=path, hint=hint)
        if os.path.exists(path) and not os.path.isdir(path):
            raise BadInput("is not a folder", field="--out", value=path)

    def has(self, package: str, wheel: str, sha256: str | None) -> bool:
        """Tell whether an earlier run measured a wheel."""
        return any(
            record.wheel == wheel and sha256 in (None, record.sha256)
            for record in self._records(package)
        )

    def add_record(self, record: Record) -> None:
        """Add the record of a wheel to the folder."""
        kept = {one.wheel: one for one in self._records(record.package)}
        kept[record.wheel] = record
        text = records.to_yaml(record.package, list(kept.values()), with_sources=True)
        self._write(f"packages/{record.package}", text)

    def add_entry(self, news: News) -> None:
        """Add the record of a framework or library to the folder."""
        assert news.entry is not None  # noqa: S101 - the caller checked
        head: dict[str, Any] = {"schema": _FORMS.get(news.facts, "facts/framework/v1")}
        if "/" in news.facts:
            head["component"] = sources.title(news.facts)
        there = self._document(news.facts) or {**head, "releases": []}
        releases = {row["version"]: row for row in there["releases"]}
        key = news.entry["version"]
        releases[key] = {**releases.get(key, {}), **news.entry}
        document = {**there, "releases": list(releases.values())}
        text = yaml.safe_dump(
            document, sort_keys=False, default_flow_style=None, width=_WIDTH, allow_unicode=True
        )
        self._write(news.facts, text)

    def check(self) -> None:
        """Check the written files as overlays of the facts.

        Raises:
            BadInput: a file is not a valid overlay.
        """
        open_library([*self._below, *self.written])

    def _records(self, package: str) -> tuple[Record, ...]:
        facts = f"packages/{package}"
        document = self._document(facts)
        return records.parse_records(package, document, self._path(facts)) if document else ()

    def _document(self, facts: str) -> dict[str, Any] | None:
        path = self._path(facts)
        if not os.path.isfile(path):
            return None
        return sources.parse(sources.read_bytes(path), path)

    def _path(self, facts: str) -> str:
        return os.path.join(self.path, *facts.split("/")) + sources.SUFFIX

    def _write(self, facts: str, text: str) -> None:
        path = self._path(facts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        beside = f"{path}.part"
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
        if path not in self.written:
            self.written.append(path)
