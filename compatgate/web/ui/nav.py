"""The navigation: what there is, where, and the keys that lead there."""

from __future__ import annotations

from msgspec import Struct


class Item(Struct, frozen=True):
    """A place.

    Attributes:
        name: its path below ``/ui``, but for home.
        key: pressed after ``g``.
        scope: that one needs to see it.
    """

    name: str
    label: str
    key: str
    scope: str = "read"

    @property
    def path(self) -> str:
        """Below ``/ui``; empty: home."""
        return "" if self.name == "home" else self.name


class Group(Struct, frozen=True):
    """Places that belong together."""

    label: str
    items: tuple[Item, ...]


NAVIGATION: tuple[Group, ...] = (
    Group(
        "Gate",
        (
            Item("home", "Home", "h"),
            Item("matrix", "Matrix", "m"),
            Item("ask", "Ask", "a", "gate"),
            Item("what-if", "What if", "w", "gate"),
        ),
    ),
    Group(
        "Blessed",
        (
            Item("targets", "Targets", "t"),
            Item("entries", "Entries", "e"),
            Item("waivers", "Waivers", "x"),
            Item("revisions", "Revisions", "v"),
        ),
    ),
    Group(
        "Fleet",
        (
            Item("nodes", "Nodes", "n"),
            Item("drift", "Drift", "y"),
        ),
    ),
    Group(
        "Canaries",
        (
            Item("runs", "Runs", "r"),
            Item("baselines", "Baselines", "b"),
            Item("hosts", "Staging hosts", "s"),
            Item("suites", "Suites", "i"),
            Item("workloads", "Workloads", "o"),
        ),
    ),
    Group(
        "Records",
        (
            Item("decisions", "Decisions", "d"),
            Item("audit", "Audit", "l"),
        ),
    ),
    Group(
        "Reference",
        (
            Item("facts", "Facts", "f"),
            Item("rules", "Rules", "u"),
        ),
    ),
    Group("Administration", (Item("tokens", "Tokens", "k", "admin"),)),
)


def keys() -> dict[str, str]:
    """What each key means after ``g``: a path."""
    return {item.key: item.path for group in NAVIGATION for item in group.items}
