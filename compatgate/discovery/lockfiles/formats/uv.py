"""Read uv.lock: a resolution for every platform at once, of which the target gets one path.

Source: https://docs.astral.sh/uv/concepts/projects/layout/#the-lockfile and the files that uv
writes: ``version = 1``; a package's ``dependencies`` name version and source where there are forks.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from compatgate.discovery.lockfiles.interface import (
    ListedPackage,
    LockContents,
    LockFile,
    LockFormat,
)
from compatgate.discovery.lockfiles.platform import Markers, Platform
from compatgate.discovery.lockfiles.stack_components import find_pypi_component
from compatgate.discovery.lockfiles.text import (
    list_texts,
    read_tables,
    read_text,
    read_toml,
    refuse_variable,
)
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
_PARTS = {"extra": "optional-dependencies", "group": "dev-dependencies"}
"""Kind of an optional part, to the key of its requirements."""


def _read(file: LockFile, platform: Platform) -> LockContents:
    document = read_toml(file.text, file.name)
    version = document.get("version", 1)
    if version != _NEWEST_VERSION:
        hint = f"use version {_NEWEST_VERSION}"
        raise BadInput(f"has version {version!r} of uv's format", field=file.name, hint=hint)
    graph = _Graph(document, file.name, platform)
    packages = tuple(graph.package(node, *how) for node, how in graph.walk().items())
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
        self._names = [read_text(package, "name", file) for package in self.packages]
        self._by_name: dict[str, list[int]] = {}
        for node, name in enumerate(self._names):
            self._by_name.setdefault(name, []).append(node)
        members = set(list_texts(self._manifest.get("members")))
        self._members = [node for node, name in enumerate(self._names) if name in members]
        sources = [package.get("source") for package in self.packages]
        own = [
            node
            for node, source in enumerate(sources)
            if isinstance(source, dict) and any(source.get(key) == "." for key in _ROOT_SOURCES)
        ]
        self._roots = own or self._members
        self.conflicts = self._markers("", "").conflicts

    def walk(self) -> dict[int, tuple[str, str]]:
        """Return every package for the platform, with its undecided condition and its selection.

        Without a component, add the packages of each extra, group and member.
        """
        reached = self._walk("", "", self._roots)
        if any(find_pypi_component(self._names[node]) for node in reached):
            return reached
        for kind, name in self._others():
            roots = self._by_name[name] if kind == "member" else self._roots
            for node, how in self._walk(kind, name, roots).items():
                reached.setdefault(node, how)
        return reached

    def package(self, node: int, when: str, selection: str) -> ListedPackage:
        """Return a package as `LockContents` has it."""
        table = self.packages[node]
        name, file = self._names[node], self._file
        source = table.get("source")
        urls = [str(value) for value in source.values()] if isinstance(source, dict) else []
        wheels = select_wheels(table.get("wheels"), self._platform)
        labels, variants = select_variants(table.get("variants-json"), wheels)
        return ListedPackage(
            name,
            f"{file}: {name}",
            version=read_text(table, "version", file) or None,
            specifier="" if "version" in table else "its own source",
            sources=tuple(urls + [wheel.url for wheel in wheels]),
            when=when or describe_missing_wheel(table, wheels, self._platform),
            selection=selection,
            labels=labels,
            variants=variants,
            wheels=tuple(wheels),
            depends=tuple(read_text(edge, "name", file) for edge in self._edges(node)),
            index=str(source.get("registry", "")) if isinstance(source, dict) else "",
        )

    def _walk(self, kind: str, name: str, roots: list[int]) -> dict[int, tuple[str, str]]:
        markers = self._markers(kind, name)
        selection = f"{kind} {name}".strip()
        reached: dict[int, tuple[str, str]] = {}
        known: dict[tuple[int, str], str] = {}
        queue: deque[tuple[int, str, str]] = deque()
        for edge in self._root_edges(kind, name, roots):
            self._follow(edge, "", markers, queue)
        while queue:
            node, extra, when = queue.popleft()
            before = known.get((node, extra))
            if before == "" or (before is not None and when):
                continue
            known[node, extra] = when
            if node not in reached or (reached[node][0] and not when):
                reached[node] = (when, selection)
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

    def _edges(
        self, node: int, part: str = "", key: str = "optional-dependencies"
    ) -> list[dict[str, Any]]:
        """Return what a package requires; with a ``part``, what this extra or group adds."""
        package = self.packages[node]
        if not part:
            return read_tables(package.get("dependencies"), "dependencies", self._file)
        parts = package.get(key)
        return read_tables(parts.get(part) if isinstance(parts, dict) else None, key, self._file)

    def _root_edges(self, kind: str, name: str, roots: list[int]) -> list[dict[str, Any]]:
        """Return requirements of the project or script; all packages without either."""
        edges = read_tables(self._manifest.get("requirements"), "manifest", self._file)
        edges = [{k: v for k, v in e.items() if k in ("name", "marker", "extra")} for e in edges]
        for node in roots:
            edges += self._edges(node)
            if kind in _PARTS:
                edges += self._edges(node, name, _PARTS[kind])
        if not roots and not edges:
            edges = [{"name": name} for name in self._by_name]
        return edges

    def _others(self) -> list[tuple[str, str]]:
        """Return extras, groups and members of the workspace, which are optional."""
        others: dict[tuple[str, str], None] = {}
        for node in self._roots:
            for kind, key in _PARTS.items():
                table = self.packages[node].get(key)
                if isinstance(table, dict):
                    others.update({(kind, name): None for name in table})
        members = (self._names[node] for node in self._members if node not in self._roots)
        others.update({("member", name): None for name in members})
        return list(others)[:_MAX_SELECTIONS]

    def _markers(self, kind: str, name: str) -> Markers:
        """Return markers with uv's extras of conflicts: ``extra-7-trainer-cu124``."""
        encoded = {
            f"{kind}-{len(self._names[node])}-{self._names[node]}-{name}"
            for node in self._roots
            if kind in _PARTS
        }
        return Markers(
            self._platform,
            file=self._file,
            requires_python=refuse_variable(self._requires, self._file),
            extras={*encoded, name} if kind == "extra" else encoded,
            groups={name} if kind == "group" else (),
        )
