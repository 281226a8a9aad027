"""Order the nodes of an upgrade in waves, so that no failure domain ever has two drivers.

Nodes that share a label of NVLink or of a rack are one domain and take the driver together. The
NVLink domain of `nvidia.com/gpu.clique` is the cluster's UUID: all cliques of a rack of GB200 share
its switches. Source: NVIDIA/k8s-device-plugin (``<ClusterUUID>.<CliqueID>``), NVIDIA/topograph and
the clouds' documentation of topology labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from compatgate.core.compare.differences import count_things
from compatgate.core.facts.nvidia import Gpu
from compatgate.core.request import Pool
from compatgate.core.versions import natural_key

DomainKind = Literal["nvlink", "rack", "node", "pool"]
"""The reason for a failure domain: NVLink, a rack or switch, nothing, or a lack of labels."""
CLIQUE = "nvidia.com/gpu.clique"
NVLINK_LABELS = (CLIQUE, "network.topology.nvidia.com/accelerator")
RACK_LABELS = (
    "network.topology.nvidia.com/leaf",
    "topology.kubernetes.io/rack",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
)
MULTI_NODE_NVLINK = ("GH200", "GB200", "GB300")
"""GPUs whose racks join nodes by NVLink; without a label which nodes those are is not known."""
_KINDS: tuple[DomainKind, ...] = ("nvlink", "rack", "pool", "node")
SHARES = (0.1, 0.5, 1.0)  # largest share of the nodes after each wave that follows the first domain
_Key = tuple[DomainKind, str, str]
"""What joins a node with others: the kind of domain, a label and its value."""


class PlannedNode(Struct, frozen=True):
    """A reported node of a target."""

    name: str  # with its cluster where there are several
    pool: str | None  # of the target; None: none has its GPUs
    driver: str | None  # None: not known
    labels: Mapping[str, str]


class FailureDomain(Struct, frozen=True):
    """Nodes that take a driver together.

    Attributes:
        label: node label that joins the nodes; None: no label.
        nodes: names of the nodes, with the cluster if several clusters exist.
        mixed: current drivers of the nodes, if they differ.
        done: number of nodes that have the new driver already.
    """

    name: str
    kind: DomainKind
    label: str | None
    pools: tuple[str, ...]
    nodes: tuple[str, ...]
    mixed: tuple[str, ...] = ()
    done: int = 0


class UpgradeWave(Struct, frozen=True):
    """Domains that take the driver at the same time."""

    number: int
    pools: tuple[str, ...]
    nodes: int
    domains: tuple[FailureDomain, ...]


class PoolOrder(Struct, frozen=True):
    """A pool in the order of the upgrade.

    Attributes:
        nodes: reported nodes; ``declared`` is the count of the target.
        held: reason why the vendors' facts forbid the change; None: they allow it.
        needed: requirements before the pool may change.
    """

    pool: str
    gpu: str | None
    driver: str | None
    nodes: int
    declared: int
    held: str | None
    needed: tuple[str, ...] = ()


class UpgradeOrder(Struct, frozen=True):
    """Pools in order, and the waves of their nodes.

    Attributes:
        left: number of nodes in no wave: their pool is held, or no pool of the target has them.
    """

    pools: tuple[PoolOrder, ...]
    waves: tuple[UpgradeWave, ...]
    left: int
    remarks: tuple[str, ...] = ()


def order_upgrade(
    pools: Sequence[Pool],
    nodes: Sequence[PlannedNode],
    driver: str | None,
    held: Mapping[str, str],
    needed: Mapping[str, tuple[str, ...]],
    rack_labels: Sequence[str] = RACK_LABELS,
) -> UpgradeOrder:
    """Return pools in order, and the waves of their nodes.

    The first wave is one domain; then domains follow up to `SHARES` of the nodes. Domains that have
    begun (some of their nodes have the new driver) come first. A domain with a node of a held pool
    is held as a whole. Without a new driver every domain goes.
    """
    gpus = {pool.name: pool.gpu for pool in pools}
    placed = [node for node in nodes if node.pool in gpus]
    rows = [
        PoolOrder(
            pool.name,
            pool.gpu.sku if pool.gpu else None,
            pool.driver.text if pool.driver else None,
            sum(node.pool == pool.name for node in placed),
            pool.count,
            held.get(pool.name),
            needed.get(pool.name, ()),
        )
        for pool in pools
    ]
    rows.sort(key=lambda row: (row.held is not None, row.nodes or row.declared, row.pool))
    rank = {row.pool: number for number, row in enumerate(rows)}
    domains = find_domains(placed, gpus, driver, rack_labels)
    going = [
        d
        for d in domains
        if held.keys().isdisjoint(d.pools) and (driver is None or d.done < len(d.nodes))
    ]
    going.sort(
        key=lambda d: (
            not d.done and not d.mixed,
            min(rank[pool] for pool in d.pools),
            len(d.nodes),
            natural_key(d.name),
        )
    )
    waves = _fill_waves(going)
    done = sum(len(d.nodes) for d in domains if driver is not None and d.done == len(d.nodes))
    left = len(nodes) - sum(wave.nodes for wave in waves) - done
    return UpgradeOrder(tuple(rows), waves, left, _remark(rows, domains, nodes, done))


def find_domains(
    nodes: Iterable[PlannedNode],
    gpus: Mapping[str, Gpu | None],
    driver: str | None,
    rack_labels: Sequence[str] = RACK_LABELS,
) -> list[FailureDomain]:
    """Join nodes that share a label's value, directly or by way of others, to domains."""
    known = [(node, _list_keys(node, gpus, rack_labels)) for node in nodes]
    parent = list(range(len(known)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    first: dict[_Key, int] = {}
    for number, (_, keys) in enumerate(known):
        for key in keys:
            parent[root(number)] = root(first.setdefault(key, number))
    groups: dict[int, list[tuple[PlannedNode, list[_Key]]]] = {}
    for number, one in enumerate(known):
        groups.setdefault(root(number), []).append(one)
    return [_make_domain(group, driver) for group in groups.values()]


def _list_keys(
    node: PlannedNode, gpus: Mapping[str, Gpu | None], rack_labels: Sequence[str]
) -> list[_Key]:
    keys: list[_Key] = []
    for label in NVLINK_LABELS:
        if value := node.labels.get(label):
            domain = value.rpartition(".")[0] or value if label == CLIQUE else value
            keys.append(("nvlink", label, domain))
    keys += [("rack", label, value) for label in rack_labels if (value := node.labels.get(label))]
    pool = node.pool or ""
    gpu = gpus.get(pool)
    if not keys and gpu is not None and any(name in gpu.name for name in MULTI_NODE_NVLINK):
        return [("pool", "", pool)]
    return keys


def _make_domain(
    group: Sequence[tuple[PlannedNode, Sequence[_Key]]], driver: str | None
) -> FailureDomain:
    nodes = [node for node, _ in group]
    keys = sorted({key for _, of_node in group for key in of_node}, key=lambda key: key[1:])
    kind, label, name = min(
        keys, key=lambda key: _KINDS.index(key[0]), default=("node", "", nodes[0].name)
    )
    drivers = sorted({node.driver for node in nodes if node.driver}, key=natural_key)
    return FailureDomain(
        name,
        kind,
        label or None,
        tuple(sorted({node.pool or "" for node in nodes})),
        tuple(sorted((node.name for node in nodes), key=natural_key)),
        tuple(drivers) if len(drivers) > 1 else (),
        sum(driver is not None and node.driver == driver for node in nodes),
    )


def _fill_waves(domains: Sequence[FailureDomain]) -> tuple[UpgradeWave, ...]:
    total = sum(len(d.nodes) for d in domains)
    limits = [0, *(int(total * share) for share in SHARES)]
    parts: list[list[FailureDomain]] = []
    placed, step = 0, 0
    for domain in domains:
        size = len(domain.nodes)
        if not parts:
            parts.append([])
        elif parts[-1] and placed + size > limits[step]:
            parts.append([])
            while step < len(limits) - 1 and placed + size > limits[step]:
                step += 1
        parts[-1].append(domain)
        placed += size
    return tuple(
        UpgradeWave(
            number,
            tuple(sorted({pool for d in part for pool in d.pools})),
            sum(len(d.nodes) for d in part),
            tuple(part),
        )
        for number, part in enumerate(parts, 1)
    )


def _remark(
    rows: Sequence[PoolOrder],
    domains: Sequence[FailureDomain],
    nodes: Sequence[PlannedNode],
    done: int,
) -> tuple[str, ...]:
    remarks = []
    if mixed := [d for d in domains if d.mixed]:
        names = ", ".join(d.name for d in mixed[:5])
        remarks.append(f"{len(mixed)} domains have several drivers now, they come first: {names}")
    if unlabelled := sorted({d.name for d in domains if d.kind == "pool"}):
        remarks.append(
            f"pool {', '.join(unlabelled)}: no label names the NVLink domain, so the whole pool is "
            f"one domain; report nodes with {CLIQUE}"
        )
    if done:
        remarks.append(
            f"{count_things(done, 'node')} {'has' if done == 1 else 'have'} the driver already"
        )
    silent = [row.pool for row in rows if not row.nodes and row.held is None]
    if silent:
        remarks.append(f"pool {', '.join(silent)}: no node is reported, so it is in no wave")
    if lost := sum(node.pool is None for node in nodes):
        owns = "has a GPU" if lost == 1 else "have GPUs"
        remarks.append(f"{count_things(lost, 'node')} {owns} that no pool of the target declares")
    return tuple(remarks)
