"""Require that waves and nodes of an upgrade exist."""

from __future__ import annotations

from collections.abc import Collection

from compatgate.core.upgrade_state import Upgrade
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound
from compatgate.service.upgrades.repository import split_key


def require_wave(upgrade: Upgrade, number: int | None) -> None:
    """Require that an upgrade has a wave.

    Raises:
        NotFound: it has none of that number; names those that there are.
    """
    last = len(upgrade.waves)
    if number is not None and not 1 <= number <= last:
        have = f"waves 1 to {last}" if last > 1 else "one wave, 1"
        raise NotFound(
            f"{upgrade.name} has no wave {number}", field="wave", value=number,
            hint=f"it has {have}",
        )  # fmt: skip


def pick_keys(upgrade: Upgrade, nodes: Collection[str]) -> list[str]:
    """Return the keys of nodes that are named by key, or by a name that one cluster has.

    Raises:
        NotFound: the upgrade has no such node.
        BadInput: several clusters have one.
    """
    keys = [key for wave in upgrade.waves for key in wave.nodes]
    by_name: dict[str, list[str]] = {}
    for key in keys:
        by_name.setdefault(split_key(key)[1], []).append(key)
    known, found = set(keys), []
    for place, node in enumerate(nodes):
        field = f"nodes[{place}]"
        same = [node] if node in known else by_name.get(node, [])
        if not same:
            hint = suggest_name(node, [*known, *by_name])
            what = f"{upgrade.name} has no node {node!r}"
            raise NotFound(what, field=field, value=node, hint=hint)
        if len(same) > 1:
            raise BadInput(
                "belongs to several clusters",
                field=field,
                value=node,
                hint=f"name one, for example {same[0]}",
            )
        found.append(same[0])
    return list(dict.fromkeys(found))
