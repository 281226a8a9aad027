"""Store nodes by cluster and name, with the last report of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Boolean, Index, Text, insert, select, tuple_, type_coerce, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.kit.database.tables import Base, JsonText, Page, UtcTime, in_parts, narrow, page


class Node(Base):
    """A node, as its sources last reported it."""

    __tablename__ = "nodes"
    __table_args__ = (Index(None, "seen_at"), Index(None, "changed_at"))

    cluster: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    driver: Mapped[str | None] = mapped_column(Text, comment="That counts; null: not known")
    gpus: Mapped[Any] = mapped_column(
        JsonText, comment="JSON: SKUs that count, each with its number"
    )
    skus: Mapped[str] = mapped_column(Text, comment="|SKU|SKU|, for filters")
    disagrees: Mapped[bool] = mapped_column(Boolean, comment="Witnesses disagree")
    disagreements: Mapped[Any] = mapped_column(JsonText, comment="JSON: in sentences")
    target: Mapped[str | None] = mapped_column(Text, comment="That the node's annotation names")
    labels: Mapped[Any] = mapped_column(JsonText, comment="JSON: last reported")
    witnesses: Mapped[Any] = mapped_column(JsonText, comment="JSON: what each says, and when")
    reported_by: Mapped[str] = mapped_column(Text, comment="Name of the token, last")
    first_seen_at: Mapped[datetime] = mapped_column(UtcTime)
    seen_at: Mapped[datetime] = mapped_column(UtcTime, comment="By any witness")
    since: Mapped[datetime] = mapped_column(UtcTime, comment="Of the present driver and GPUs")
    taints: Mapped[Any] = mapped_column(
        JsonText, server_default="[]", comment="JSON: last reported"
    )
    changed_at: Mapped[datetime | None] = mapped_column(
        UtcTime, comment="Gate's clock: labels, taints, target, GPUs or driver; null: before 0011"
    )
    assigned: Mapped[str | None] = mapped_column(
        Text, comment="Target, by the scope bless; empty: by labels"
    )


class NodeRow(Struct, frozen=True):
    """A node as it is stored; see `compatgate.service.nodes.repository.Node`.

    Attributes:
        gpus: ``{"gpu": SKU, "count": 8}`` each.
        witnesses: by name, plain data.
        taints: ``{"key": ..., "effect": ..., "value": ...}`` each.
        changed_at: when the gate stored what placement and drift read; None: a program before it
            did so.
        assigned: target that a report of somebody with the scope ``bless`` named, last; empty: it
            named none, and the labels are still the same; None: there is no such report.
    """

    cluster: str
    name: str
    driver: str | None
    gpus: list[dict[str, Any]]
    disagreements: list[str]
    target: str | None
    labels: dict[str, str]
    witnesses: dict[str, dict[str, Any]]
    reported_by: str
    first_seen_at: datetime
    seen_at: datetime
    since: datetime
    taints: list[dict[str, str]] = []
    changed_at: datetime | None = None
    assigned: str | None = None


NodeKey = tuple[str, str]
"""Cluster and name of a node."""
_decode = msgspec.json.Decoder().decode
_COLUMNS = tuple(Node.__table__.c[name] for name in NodeRow.__struct_fields__)
KEY_COLUMNS = (Node.__table__.c.cluster, Node.__table__.c.name)
"""Plain columns: their rows cost half of those of mapped ones."""
_CHANGED_AT = Node.__table__.c.changed_at


def load_nodes(session: Session, cluster: str, names: Collection[str]) -> dict[str, NodeRow]:
    """Return known nodes of a cluster by name."""
    query = select(*_COLUMNS).where(Node.cluster == cluster, Node.name.in_(names))
    return {row.name: NodeRow(*row) for row in session.execute(query)}


def load_nodes_of(session: Session, keys: Iterable[NodeKey]) -> dict[NodeKey, NodeRow]:
    """Return known nodes by cluster and name, of any clusters."""
    rows: dict[NodeKey, NodeRow] = {}
    for cluster, names in group_keys(keys):
        rows |= {(cluster, name): row for name, row in load_nodes(session, cluster, names).items()}
    return rows


def group_keys(keys: Iterable[NodeKey]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield clusters with names of their nodes, as many at once as one statement takes.

    SQLite reads the whole table for pairs of cluster and name.
    """
    by_cluster: dict[str, list[str]] = {}
    for cluster, name in keys:
        by_cluster.setdefault(cluster, []).append(name)
    for cluster, names in by_cluster.items():
        yield from ((cluster, some) for some in in_parts(names))


class NodeTraits(Struct, frozen=True):
    """The part of a stored node that placement and drift read; whole fleets are read so.

    Labels, witnesses and taints are JSON, as stored.
    """

    cluster: str
    name: str
    driver: str | None
    gpus: tuple[str, ...]
    target: str | None
    labels: str
    witnesses: str
    taints: str
    since: datetime
    changed_at: datetime | None
    assigned: str | None


def list_traits(session: Session, after: NodeKey | None, limit: int) -> list[NodeTraits]:
    """Return the traits of the nodes after one, in the order of the database."""
    query = select(*_TRAITS).order_by(*KEY_COLUMNS).limit(limit)
    if after is not None:
        query = query.where(tuple_(*after) < _KEY)
    return [_traits(row) for row in session.execute(query)]


def load_traits(session: Session, keys: Sequence[NodeKey]) -> list[NodeTraits]:
    """Return the traits of some nodes; those that are not stored are left out."""
    found: list[NodeTraits] = []
    for cluster, names in group_keys(keys):
        query = select(*_TRAITS).where(Node.cluster == cluster, Node.name.in_(names))
        found += map(_traits, session.execute(query))
    return found


_KEY = tuple_(*KEY_COLUMNS)
_TEXTS = ("gpus", "labels", "witnesses", "taints")
_TRAITS = tuple(
    type_coerce(Node.__table__.c[name], Text) if name in _TEXTS else Node.__table__.c[name]
    for name in NodeTraits.__struct_fields__
)
_GPUS = NodeTraits.__struct_fields__.index("gpus")


def _traits(found: Any) -> NodeTraits:
    values = list(found)
    values[_GPUS] = _read_skus(values[_GPUS])
    return NodeTraits(*values)


@lru_cache(maxsize=4096)
def _read_skus(text: str) -> tuple[str, ...]:
    return tuple(kind["gpu"] for kind in _decode(text))


def list_unseen_keys(
    session: Session, since: datetime, among: Sequence[NodeKey] | None = None
) -> set[NodeKey]:
    """Return cluster and name of the nodes without a report since a time, of some or all."""
    query = select(*KEY_COLUMNS).where(Node.__table__.c.seen_at < since)
    if among is None:
        return {tuple(row) for row in session.execute(query)}
    found: set[NodeKey] = set()
    for cluster, names in group_keys(among):
        part = query.where(Node.cluster == cluster, Node.name.in_(names))
        found |= {tuple(row) for row in session.execute(part)}
    return found


def find_by_name(session: Session, name: str) -> list[NodeRow]:
    """Return the nodes of a name in all clusters, by cluster."""
    query = select(*_COLUMNS).where(Node.name == name).order_by(Node.cluster)
    return [NodeRow(*row) for row in session.execute(query)]


def save_nodes(session: Session, rows: Sequence[NodeRow], known: Collection[str]) -> None:
    """Store nodes of one cluster as they are now; some are known, by name."""
    new = []
    for row in rows:
        values = msgspec.structs.asdict(row)
        values["skus"] = "".join(f"|{kind['gpu']}" for kind in row.gpus) + "|"
        values["disagrees"] = bool(row.disagreements)
        if row.name in known:
            key = (Node.cluster == row.cluster, Node.name == row.name)
            session.execute(update(Node).where(*key).values(**values))
        else:
            new.append(values)
    if new:
        session.execute(insert(Node), new)


def list_nodes(
    session: Session,
    *,
    cluster: str | None = None,
    search: str | None = None,
    sku: str | None = None,
    disagrees: bool | None = None,
    names: Collection[str] | None = None,
    seen_before: datetime | None = None,
    seen_after: datetime | None = None,
    cursor: str | None = None,
    limit: int,
) -> Page[NodeRow]:
    """Return nodes by cluster and name; ``names``: a few thousand at most."""
    query = narrow(select(*_COLUMNS), {Node.cluster: cluster, Node.disagrees: disagrees})
    if search:
        query = query.where(Node.name.icontains(search, autoescape=True))
    if sku:
        query = query.where(Node.skus.contains(f"|{sku}|", autoescape=True))
    if names is not None:
        query = query.where(Node.name.in_(names))
    if seen_before:
        query = query.where(Node.seen_at < seen_before)
    if seen_after:
        query = query.where(Node.seen_at >= seen_after)
    return page(
        session, query, (Node.cluster, Node.name), lambda row: NodeRow(*row),
        cursor=cursor, limit=limit,
    )  # fmt: skip


def list_changes(
    session: Session, moments: Sequence[datetime] | None, since: datetime | None
) -> dict[NodeKey, datetime]:
    """Return when what placement and drift read of nodes changed, by cluster and name.

    Only changes at certain moments; without these since a moment, or of every node with one.
    """
    query = select(*KEY_COLUMNS, _CHANGED_AT)
    parts = [Node.changed_at.is_not(None) if since is None else Node.changed_at >= since]
    if moments is not None:
        parts = [Node.changed_at.in_(some) for some in in_parts(moments)]
    found = (row for part in parts for row in session.execute(query.where(part)))
    return {(cluster, name): at for cluster, name, at in found}
