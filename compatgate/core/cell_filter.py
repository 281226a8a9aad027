"""Read the filter of stacks and places, and ask it: ``torch 2.8.1 & H100 & driver<580``.

A term about a stack keeps an entry that *allows* it: ``torch 2.8.1`` finds ``2.8.*``. A term about
a place keeps the targets and pools that have it. Every term must hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import get_args

from msgspec import Struct

from compatgate.core.components import find_component
from compatgate.core.constraints import Constraint, parse_constraint
from compatgate.core.entry_stacks import known_versions
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, EntryStatus
from compatgate.core.request import Pool
from compatgate.core.stack import Stack
from compatgate.core.versions import Version
from compatgate.errors import BadInput

MAX_FILTER = 200
_TERM = re.compile(
    r"(?P<name>[a-z][\w-]*)\s*(?P<op>==|!=|>=|<=|~=|>|<|=|\s)\s*v?(?P<version>\d[\w.+*]*)",
    re.IGNORECASE,
)
_LABEL = re.compile(r"\+?cu(\d{2})(\d)", re.IGNORECASE)
_STATUSES: tuple[str, ...] = get_args(EntryStatus)
_NOISE = frozenset(("and", "&", "with", "on", "@"))
_HINT = (
    "versions like torch 2.8.1, cu128 or driver<580; blessed; a GPU like H100;"
    " a target, an entry, or a label like tier=prod"
)


class CellFilter(Struct, frozen=True):
    """The conditions for rows and columns."""

    # component and constraint; an entry must allow a version that meets it
    versions: tuple[tuple[str, Constraint], ...] = ()
    cuda: tuple[tuple[int, int], ...] = ()  # CUDA series of the builds
    statuses: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of entries, where ``*`` matches any characters
    driver: Constraint | None = None
    # parts of GPU names, names of targets, or ``key=value`` of their labels
    words: tuple[str, ...] = ()

    def keep_entries(self, entries: Iterable[Entry], facts: Facts) -> list[Entry]:
        """Return the entries that have a status and a name of these, and allow the versions."""
        known: dict[tuple[str, str, str], bool] = {}  # many entries have the same constraints

        def overlaps(name: str, allowed: Constraint, wanted: Constraint) -> bool:
            key = (name, allowed.text, wanted.text)
            if key not in known:
                named = [clause.version for one in (allowed, wanted) for clause in one.clauses]
                candidates: Iterable[Version] = (*named, *known_versions(facts, name))
                known[key] = any(allowed.allows(one) and wanted.allows(one) for one in candidates)
            return known[key]

        def keeps(entry: Entry) -> bool:
            if self.statuses and entry.status not in self.statuses:
                return False
            if self.names and not any(fnmatchcase(entry.name, name) for name in self.names):
                return False
            stated = entry.components
            return all(
                name in stated and overlaps(name, stated[name], wanted)
                for name, wanted in self.versions
            ) and all(_allows_series(stated, pair, overlaps) for pair in self.cuda)

        return [entry for entry in entries if keeps(entry)]

    def keeps_stack(self, stack: Stack) -> bool:
        """Return whether a stack has the versions; statuses and names are of entries alone."""
        if self.statuses or self.names:
            return False
        for name, wanted in self.versions:
            have = stack.get(name)
            if have is None or not wanted.allows(have):
                return False
        cuda = stack.get("cuda")
        cudas: set[tuple[int, ...]] = {cuda.major_minor} if cuda else set()
        cudas |= {one.cuda for one in stack.components.values() if one.cuda}
        return cudas.issuperset(self.cuda)

    def keeps_place(self, target: str, labels: Mapping[str, str], pool: Pool) -> bool:
        """Return whether a pool has the driver, and it or its target each of the words."""
        if self.driver and not (pool.driver and self.driver.allows(pool.driver)):
            return False
        return all(_names(word, target, labels, pool) for word in self.words)


Place = tuple[str, Mapping[str, str], Pool]  # name and labels of a target, and one of its pools


def read_filter(text: str, places: Iterable[Place], entries: Collection[str] = ()) -> CellFilter:
    """Read a filter.

    Terms stand between spaces, commas or ``&``; a word names one of ``places`` or of ``entries``.
    """
    if len(text) > MAX_FILTER:
        raise BadInput(f"has more than {MAX_FILTER} characters", field="q", hint=_HINT)
    known = list(places)
    versions: list[tuple[str, Constraint]] = []
    cuda: list[tuple[int, int]] = []
    statuses: list[str] = []
    names: list[str] = []
    words: list[str] = []
    drivers: list[str] = []
    rest = _TERM.sub(lambda found: _take_version(found, versions, drivers), text)
    for word in re.split(r"[\s,&]+", rest):
        if not word or word.casefold() in _NOISE:
            continue
        if label := _LABEL.fullmatch(word):
            cuda.append((int(label[1]), int(label[2])))
        elif word.casefold() in _STATUSES:
            statuses.append(word.casefold())
        elif any(_names(word, *place) for place in known):
            words.append(word)
        elif any(fnmatchcase(name, word) for name in entries):
            names.append(word)
        elif find_component(word):
            hint = f"like {word} 2.8, {word}>=2.6"
            raise BadInput("has no version", field="q", value=word, hint=hint)
        else:
            problem = "is neither a version, a status, an entry nor a place of this fleet"
            raise BadInput(problem, field="q", value=word, hint=_HINT)
    driver = parse_constraint("driver", ",".join(drivers)) if drivers else None
    return CellFilter(
        tuple(versions), tuple(cuda), tuple(statuses), tuple(names), driver, tuple(words)
    )


def _take_version(
    found: re.Match[str], versions: list[tuple[str, Constraint]], drivers: list[str]
) -> str:
    """Move a version out of the text; a name that is no component stays."""
    match = find_component(found["name"])
    if match is None:
        return found[0]
    component = match.component
    operator = found["op"].strip() or "="
    version = found["version"]
    exact = operator in ("=", "==")
    shortest = 1 if component.name == "driver" else 2
    if exact and not {"*", "+"} & set(version) and version.count(".") < shortest:
        version, operator = f"{version}.*", "=="
    written = f"{operator}{version}"
    try:
        constraint = parse_constraint(component.name, written)
    except BadInput as error:
        raise error.at("q") from None
    if component.name == "driver":
        drivers.append(written)
    else:
        versions.append((component.name, constraint))
    return " "


def _allows_series(
    stated: Mapping[str, Constraint],
    pair: tuple[int, int],
    overlaps: Callable[[str, Constraint, Constraint], bool],
) -> bool:
    """Return whether an entry allows a CUDA series, by its CUDA or the label of a build."""
    labels = [
        clause.version.cuda
        for constraint in stated.values()
        for clause in constraint.clauses
        if clause.version.cuda
    ]
    if labels:
        return pair in labels
    wanted = parse_constraint("cuda", f"{pair[0]}.{pair[1]}.*")
    return "cuda" in stated and overlaps("cuda", stated["cuda"], wanted)


def _names(word: str, target: str, labels: Mapping[str, str], pool: Pool) -> bool:
    folded = word.casefold()
    key, separator, value = word.partition("=")
    if separator:
        return labels.get(key) == value
    gpu = pool.gpu.sku.casefold() if pool.gpu else ""
    return (
        folded in gpu
        or fnmatchcase(target.casefold(), folded)
        or folded in target.casefold().split("-")
        or folded == pool.name.casefold()
    )
