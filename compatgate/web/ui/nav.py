"""The navigation: what there is, where, and the keys that lead there."""

from __future__ import annotations

from msgspec import Struct


class Item(Struct, frozen=True):
    """A place.

    Attributes:
        path: below ``/ui``; empty: home.
        key: pressed after ``g``.
        scope: that one needs to see it.
    """

    name: str
    label: str
    path: str
    key: str
    scope: str = "read"


class Group(Struct, frozen=True):
    """Places that belong together."""

    label: str
    items: tuple[Item, ...]


NAVIGATION: tuple[Group, ...] = (
    Group(
        "Gate",
        (
            Item("home", "Home", "", "h"),
            Item("matrix", "Matrix", "matrix", "m"),
            Item("ask", "Ask", "ask", "a", "gate"),
            Item("what-if", "What if", "what-if", "w", "gate"),
        ),
    ),
    Group(
        "Blessed",
        (
            Item("targets", "Targets", "targets", "t"),
            Item("entries", "Entries", "entries", "e"),
            Item("waivers", "Waivers", "waivers", "x"),
            Item("revisions", "Revisions", "revisions", "v"),
        ),
    ),
    Group(
        "Fleet",
        (
            Item("nodes", "Nodes", "nodes", "n"),
            Item("drift", "Drift", "drift", "y"),
        ),
    ),
    Group(
        "Canaries",
        (
            Item("runs", "Runs", "runs", "r"),
            Item("baselines", "Baselines", "baselines", "b"),
            Item("hosts", "Staging hosts", "hosts", "s"),
            Item("suites", "Suites", "suites", "i"),
            Item("workloads", "Workloads", "workloads", "o"),
        ),
    ),
    Group(
        "Records",
        (
            Item("decisions", "Decisions", "decisions", "d"),
            Item("audit", "Audit", "audit", "l"),
        ),
    ),
    Group(
        "Reference",
        (
            Item("facts", "Facts", "facts", "f"),
            Item("rules", "Rules", "rules", "u"),
        ),
    ),
    Group("Administration", (Item("tokens", "Tokens", "tokens", "k", "admin"),)),
)


def keys() -> dict[str, str]:
    """What each key means after ``g``: a path."""
    return {item.key: item.path for group in NAVIGATION for item in group.items}
