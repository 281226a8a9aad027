"""Read uv.lock: a resolution for every platform at once, of which the target gets one path.

Source: https://docs.astral.sh/uv/concepts/projects/layout/#the-lockfile and the files that uv
writes: ``version = 1``; a package's ``dependencies`` name version and source where there are forks.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from compatgate.discovery.lockfiles.interface import (
    ListedPackage,
    LockContents,
    LockFile,
    LockFormat,
)
from compatgate.discovery.lockfiles.platform import Markers, Platform, find_python_conflict
from compatgate.discovery.lockfiles.stack_components import find_pypi_component
from compatgate.discovery.lockfiles.text import read_tables, read_text, read_toml, refuse_variable
from compatgate.discovery.lockfiles.wheel_builds import (
    describe_missing_wheel,
    select_variants,
    select_wheels,
)
from compatgate.errors import BadInput

_NAME = re.compile(r"uv\.lock|.*\.py\.lock", re.IGNORECASE)
_SHAPE = re.compile(r"^\[\[package\]\]$[^\[]*?^source = \{", re.MULTILINE)
_ROOT_SOURCES = ("virtual", "editable", "directory")
_NEWEST_VERSION = 1
_MAX_SELECTIONS = 30


class PackagePath(Struct, frozen=True):
    """The way to a package: a path that holds, or one with an undecided condition."""

    when: str = ""
    selection: str = ""


def _read(file: LockFile, platform: Platform) -> LockContents:
    document = read_toml(file.text, file.name)
    version = document.get("version", 1)
    if version != _NEWEST_VERSION:
        hint = f"use version {_NEWEST_VERSION}"
        raise BadInput(f"has version {version!r} of uv's format", field=file.name, hint=hint)
    graph = _Graph(document, file.name, platform)
    reached = graph.walk()
    packages = tuple(graph.package(node, how, platform) for node, how in reached.items())
    return LockContents(packages, conflicts=graph.conflicts)


UV = LockFormat("uv.lock", _read, (_SHAPE,), files=_NAME)


class _Graph:
    def __init__(self, document: dict[str, Any], file: str, platform: Platform) -> None:
        self._file = file
        self._platform = platform
        self._requires = read_text(document, "requires-python", file)
        self.packages = read_tables(document.get("package"), "package", file)
        manifest = document.get("manifest")
        self._manifest: dict[str, Any] = manifest if isinstance(manifest, dict) else {}
        self._by_name: dict[str, list[int]] = {}
        for node, package in enumerate(self.packages):
            self._by_name.setdefault(read_text(package, "name", file), []).append(node)
        markers = self._markers(frozenset(), frozenset())
        self.conflicts = find_python_conflict(markers, file, platform, self._requires)

    def walk(self) -> dict[int, PackagePath]:
        """Return every package for the platform; without a component those of each selection."""
        none: frozenset[str] = frozenset()
        roots = self._roots()
        reached = self._walk(none, none, PackagePath(), roots)
        if any(find_pypi_component(self._name(node)) for node in reached):
            return reached
        for kind, name in self._others():
            more = self._walk(
                frozenset({name}) if kind == "extra" else none,
                frozenset({name}) if kind == "group" else none,
                PackagePath(selection=f"{kind} {name}"),
                self._by_name[name] if kind == "member" else roots,
            )
            for node, how in more.items():
                reached.setdefault(node, how)
        return reached

    def package(self, node: int, how: PackagePath, platform: Platform) -> ListedPackage:
        """Return a package as `LockContents` has it."""
        table = self.packages[node]
        name, file = read_text(table, "name", self._file), self._file
        source = table.get("source")
        urls = [str(value) for value in source.values()] if isinstance(source, dict) else []
        wheels = select_wheels(table.get("wheels"), platform)
        labels, variants = select_variants(table.get("variants-json"), wheels)
        return ListedPackage(
            name,
            f"{file}: {name}",
            version=read_text(table, "version", file) or None,
            specifier="" if "version" in table else "its own source",
            sources=tuple(urls + [wheel.url for wheel in wheels]),
            when=how.when or describe_missing_wheel(table, wheels, platform),
            selection=how.selection,
            labels=labels,
            variants=variants,
            wheels=tuple(wheels),
            depends=tuple(read_text(edge, "name", file) for edge in self._edges(node, "")),
            index=str(source.get("registry", "")) if isinstance(source, dict) else "",
        )

    def _walk(
        self, extras: frozenset[str], groups: frozenset[str], how: PackagePath, roots: list[int]
    ) -> dict[int, PackagePath]:
        markers = self._markers(extras, groups)
        reached: dict[int, PackagePath] = {}
        seen: dict[tuple[int, str], str] = {}
        queue: deque[tuple[int, str, str]] = deque()
        for edge in self._root_edges(extras, groups, roots):
            self._follow(edge, "", markers, queue)
        while queue:
            node, extra, when = queue.popleft()
            known = seen.get((node, extra))
            if known == "" or (known is not None and when):
                continue
            seen[node, extra] = when
            if node not in reached or (reached[node].when and not when):
                reached[node] = PackagePath(when, how.selection)
            for edge in self._edges(node, extra):
                self._follow(edge, when, markers, queue)
        return reached

    def _follow(
        self, edge: dict[str, Any], when: str, markers: Markers, queue: deque[tuple[int, str, str]]
    ) -> None:
        """Queue the packages of an edge, if its marker may hold."""
        marker = read_text(edge, "marker", self._file)
        holds = markers.decide(marker)
        if holds is False:
            return
        when = when if holds else when or marker
        asked = edge.get("extra", ())
        extras = ["", *(str(e) for e in asked)] if isinstance(asked, list) else [""]
        for node, undecided in self._candidates(edge, markers):
            for extra in extras:
                queue.append((node, extra, when or undecided))

    def _candidates(self, edge: dict[str, Any], markers: Markers) -> Iterator[tuple[int, str]]:
        """Return the packages of an edge; the platform's fork where the edge does not name one."""
        nodes = self._by_name.get(read_text(edge, "name", self._file), [])
        for key in ("version", "source"):
            if key in edge:
                nodes = [n for n in nodes if self.packages[n].get(key) == edge[key]]
        for node in nodes:
            forks = self.packages[node].get("resolution-markers")
            if len(nodes) == 1 or not isinstance(forks, list) or not forks:
                yield node, ""
                continue
            answers = [markers.decide(str(fork)) for fork in forks]
            if any(answers):
                yield node, ""
            elif None in answers:
                yield node, " or ".join(map(str, forks))

    def _edges(self, node: int, extra: str) -> list[dict[str, Any]]:
        package = self.packages[node]
        if not extra:
            return read_tables(package.get("dependencies"), "dependencies", self._file)
        optional = package.get("optional-dependencies")
        values = optional.get(extra) if isinstance(optional, dict) else None
        return read_tables(values, "optional-dependencies", self._file)

    def _root_edges(
        self, extras: frozenset[str], groups: frozenset[str], roots: list[int]
    ) -> list[dict[str, Any]]:
        """Return requirements of the project or script; all packages without either."""
        edges = read_tables(self._manifest.get("requirements"), "manifest", self._file)
        edges = [{k: v for k, v in e.items() if k in ("name", "marker", "extra")} for e in edges]
        for node in roots:
            edges += self._edges(node, "")
            for extra in extras:
                edges += self._edges(node, extra)
            development = self.packages[node].get("dev-dependencies")
            for group in groups:
                if isinstance(development, dict):
                    edges += read_tables(development.get(group), "dev-dependencies", self._file)
        if not roots and not edges:
            edges = [{"name": name} for name in self._by_name]
        return edges

    def _roots(self) -> list[int]:
        """Return the project; all members of the workspace without one."""
        own = [n for n, package in enumerate(self.packages) if _is_root(package.get("source"))]
        return own or self._members()

    def _members(self) -> list[int]:
        members = self._manifest.get("members")
        names = set(map(str, members)) if isinstance(members, list) else set()
        return [node for node in range(len(self.packages)) if self._name(node) in names]

    def _name(self, node: int) -> str:
        return read_text(self.packages[node], "name", self._file)

    def _others(self) -> list[tuple[str, str]]:
        """Return extras, groups and members of the workspace, which are optional."""
        others: dict[tuple[str, str], None] = {}
        roots = self._roots()
        for node in roots:
            for key, kind in (("optional-dependencies", "extra"), ("dev-dependencies", "group")):
                table = self.packages[node].get(key)
                if isinstance(table, dict):
                    others.update({(kind, name): None for name in table})
        others.update({("member", self._name(n)): None for n in self._members() if n not in roots})
        return list(others)[:_MAX_SELECTIONS]

    def _markers(self, extras: frozenset[str], groups: frozenset[str]) -> Markers:
        """Return markers with uv's extras of conflicts: ``extra-7-trainer-cu124``."""
        names = [self._name(node) for node in self._roots()]
        encoded = {f"extra-{len(name)}-{name}-{extra}" for name in names for extra in extras}
        encoded |= {f"group-{len(name)}-{name}-{group}" for name in names for group in groups}
        return Markers(
            self._platform,
            file=self._file,
            requires_python=refuse_variable(self._requires, self._file),
            extras=encoded | extras,
            groups=groups,
        )


def _is_root(source: object) -> bool:
    return isinstance(source, dict) and any(source.get(key) == "." for key in _ROOT_SOURCES)
