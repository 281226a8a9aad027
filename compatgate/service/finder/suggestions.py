"""Suggest pages for an address that leads nowhere: near names of pages and of objects."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from compatgate.core.performance import near_names
from compatgate.errors import CompatgateError
from compatgate.kit.http.links import link
from compatgate.service.finder.service import Hit, find_names, find_near
from compatgate.service.gate.service import Gate
from compatgate.service.tokens.principal import Principal
from compatgate.service.web.page import NAVIGATION

MAX_PLACES = 6
_SHORTEST_PREFIX = 6
"""Characters of a name that its beginning is cut to, to find others that begin so."""
_RUN_PREFIX = "run_"


def suggest_places(gate: Gate, path: str, viewer: Principal) -> tuple[Hit, ...]:
    """Return pages that an address may have meant, nearest first.

    Whoever may not read, or only some targets, learns no names; nor does anybody while the database
    is unavailable.

    Args:
        gate: holds the objects.
        path: below ``/ui``, without a slash at its begin.
        viewer: whoever asked.
    """
    if not viewer.may("read") or viewer.targets is not None:
        return ()
    room, _, rest = path.partition("/")
    name = rest.partition("/")[0]
    try:
        found = [*_suggest_objects(gate, room, name, viewer), *_suggest_pages(room, viewer)]
    except CompatgateError:
        return ()
    unique: dict[str, Hit] = {}
    for hit in found:
        unique.setdefault(hit.href, hit)
    return tuple(islice(unique.values(), MAX_PLACES))


def _suggest_pages(room: str, viewer: Principal) -> Iterator[Hit]:
    """Yield the pages of the navigation whose names are near to the first part of an address."""
    known = {
        item.name: item for group in NAVIGATION for item in group.items if viewer.may(item.scope)
    }
    near = [room] if room in known else near_names(room, list(known), most=2)
    for name in near:
        item = known[name]
        yield Hit(item.label, "page", link(item.path) if item.path else link())


def _suggest_objects(gate: Gate, room: str, name: str, viewer: Principal) -> Iterator[Hit]:
    """Yield objects whose names contain a name or are near to it; those of the room first."""
    if not name:
        return
    found = [*find_names(gate, name, viewer.may)]
    if not found:
        found = [*find_near(gate, name)]
    if not found and name.startswith(_RUN_PREFIX):
        found = [*_suggest_runs(gate, name)]
    found.sort(key=lambda hit: not hit.href.startswith(link(room)))
    yield from (hit for hit in found if hit.kind != "page")


def _suggest_runs(gate: Gate, name: str) -> Iterator[Hit]:
    """Yield runs with the longest common beginning."""
    for length in range(len(name), _SHORTEST_PREFIX - 1, -1):
        if runs := gate.runs.find_ids(name[:length], limit=MAX_PLACES):
            yield from (Hit(one, "run", link("runs", one)) for one in runs)
            return
