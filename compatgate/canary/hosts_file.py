"""Read ``hosts.toml``: the staging hosts of a worker, with endpoints and credentials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.canary.hosts import (
    CLUSTERS,
    DnsName,
    Host,
    Mistake,
    Tls,
    find_kubernetes_mistakes,
    find_slurm_mistakes,
)
from compatgate.canary.structured_files import make_file_error, read_toml
from compatgate.documents.sources import DocumentProblem
from compatgate.documents.sources import FieldPath as Place
from compatgate.documents.text import RawDocument
from compatgate.errors import NotFound

_LONGEST_NAME = 128
_HOSTNAME = "kubernetes.io/hostname"
_NODELIST = "--nodelist"
_MINIMUM = {
    "slurm": '[host.slurm] work = "/shared/compatgate"',
    "kubernetes": '[host.kubernetes] namespace = "compatgate-canary"',
}
"""Minimum configuration of a host of each of `CLUSTERS`."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class HostTable(Host, frozen=True):
    """``[[host]]``: a host, or one for each of some nodes; paths are relative to the file."""

    health: Literal["local", "node", "none"] | None = None  # type: ignore[assignment]
    each_node: Annotated[tuple[DnsName, ...], Meta(max_length=1024)] = ()


class HostsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of a ``hosts.toml``."""

    host: Annotated[tuple[HostTable, ...], Meta(min_length=1, max_length=1024)]


def read_hosts(path: Path) -> list[Host]:
    """Return the hosts of a file, in file order."""
    try:
        written, raw = read_toml(path, "hosts", HostsFile)
    except NotFound as error:
        error.field = "--hosts"
        raise
    problems = [
        p for i, table in enumerate(written.host) for p in _find_table_problems(table, raw, i)
    ]
    hosts: list[Host] = []
    taken: set[str] = set()
    for index, table in enumerate(written.host):
        made = _make_hosts(table, path.parent)
        tls = msgspec.structs.asdict(made[0].tls) if made[0].tls else {}
        problems += [
            raw.problem(("host", index, "tls", field), f"file {file} does not exist", value=file)
            for field, file in tls.items()
            if not Path(file).is_file()
        ]
        for name in (host.name for host in made):
            if name in taken:
                what = f"another host is already named {name}"
                problems.append(raw.problem(("host", index, "name"), what, value=name))
            taken.add(name)
        hosts += made
    if problems:
        raise make_file_error(path, problems)
    return hosts


def _make_hosts(table: HostTable, folder: Path) -> list[Host]:
    tls, kubernetes = table.tls, table.kubernetes
    if tls:
        tls = Tls(*(str(folder / path) for path in msgspec.structs.astuple(tls)))
    if kubernetes and kubernetes.kubeconfig:
        file = folder / Path(kubernetes.kubeconfig).expanduser()
        kubernetes = replace(kubernetes, kubeconfig=str(file))
    values = {name: getattr(table, name) for name in Host.__struct_fields__}
    health = table.health or ("none" if table.executor in CLUSTERS else "local")
    host = Host(**{**values, "tls": tls, "kubernetes": kubernetes, "health": health})
    hosts = []
    for node in table.each_node:
        bound = replace(host, name=f"{host.name}.{node}")
        if host.slurm:
            extra = (*host.slurm.extra, f"{_NODELIST}={node}")
            bound = replace(bound, slurm=replace(host.slurm, extra=extra))
        if kubernetes:
            selector = {**kubernetes.node_selector, _HOSTNAME: node}
            bound = replace(bound, kubernetes=replace(kubernetes, node_selector=selector))
        hosts.append(bound)
    return hosts or [host]


def _find_table_problems(
    table: HostTable, raw: RawDocument, index: int
) -> Iterator[DocumentProblem]:

    def problem(field: str, what: str, hint: str) -> DocumentProblem:
        value = getattr(table, field, None)
        text = value if isinstance(value, str) else None
        return raw.problem(("host", index, field), what, value=text, hint=hint)

    if table.executor != "docker":
        for field in ("endpoint", "tls"):
            if getattr(table, field) is not None:
                yield problem(field, f"the {table.executor} executor has no engine", "remove it")
        if table.devices == "cdi":
            what = f"the {table.executor} executor does not request GPUs from an engine"
            yield problem("devices", what, "remove it")
        if table.build_network:
            what = f"the {table.executor} executor does not build images"
            yield problem("build_network", what, "remove it")
    elif table.endpoint and table.endpoint.startswith("tcp://"):
        try:
            parts = urlsplit(table.endpoint)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or not port:
            yield problem("endpoint", "must name a host and a port", "such as tcp://stage-1:2376")
        elif table.tls is None and host not in _LOOPBACK:
            what = "an engine on TCP without TLS lets anybody on the network control its host"
            hint = "add tls = {ca = ..., cert = ..., key = ...}, or use ssh://"
            yield problem("endpoint", what, hint)
    elif table.tls is not None:
        yield problem("tls", "needs an endpoint on TCP", "such as tcp://host:2376")
    yield from _find_cluster_problems(table, raw, index)
    yield from _find_node_problems(table, raw, index)
    if table.driver and not table.gpu:
        yield problem("driver", "is set but the host has no gpu", "set gpu as well")
    for number, quiet in enumerate(table.quiet):
        place: Place = ("host", index, "quiet", number)
        if quiet.start == quiet.end:
            yield raw.problem((*place, "end"), "must differ from start", value=quiet.end)
        try:
            ZoneInfo(quiet.timezone)
        except (OSError, ValueError, KeyError):
            what = f"{quiet.timezone!r} is not a time zone"
            hint = "use an IANA name such as Europe/Berlin"
            yield raw.problem((*place, "timezone"), what, value=quiet.timezone, hint=hint)


def _find_cluster_problems(
    table: HostTable, raw: RawDocument, index: int
) -> Iterator[DocumentProblem]:
    here: Place = ("host", index)
    for kind, least in _MINIMUM.items():
        settings = getattr(table, kind)
        if table.executor != kind and settings:
            what = f"is not a table of the {table.executor} executor"
            yield raw.problem((*here, kind), what, hint=f'executor = "{kind}"')
        elif table.executor == kind and settings is None:
            yield raw.problem((*here, kind), "is missing", hint=f"write at least {least}")
    if table.executor in CLUSTERS and table.health == "local":
        what = "the GPUs are on the nodes, not on this machine"
        hint = 'health = "node"' if table.executor == "slurm" else 'health = "none"'
        yield raw.problem((*here, "health"), what, value="local", hint=hint)
    if table.executor != "slurm" and table.health == "node":
        what = "only jobs of slurm look at their nodes"
        hint = 'health = "none"' if table.executor in CLUSTERS else 'health = "local"'
        yield raw.problem((*here, "health"), what, value="node", hint=hint)
    mistakes: Iterable[Mistake] = ()
    if table.executor == "slurm" and table.slurm:
        mistakes = find_slurm_mistakes(table.slurm, table.gpu)
    elif table.executor == "kubernetes" and table.kubernetes:
        mistakes = find_kubernetes_mistakes(table.kubernetes)
    for place, what, hint, value in mistakes:
        yield raw.problem((*here, table.executor, *place), what, value=value, hint=hint)


def _find_node_problems(
    table: HostTable, raw: RawDocument, index: int
) -> Iterator[DocumentProblem]:
    place: Place = ("host", index, "each_node")
    if table.each_node and table.executor not in CLUSTERS:
        what = f"a {table.executor} host is one machine"
        yield raw.problem(place, what, hint="remove it")
    for number, node in enumerate(table.each_node):
        if node in table.each_node[:number]:
            what = f"the node {node} is named twice"
            yield raw.problem((*place, number), what, value=node, hint="name each node once")
        if len(f"{table.name}.{node}") > _LONGEST_NAME:
            what = "the names of host and node are too long together"
            yield raw.problem((*place, number), what, value=node, hint="shorten the host's name")
    extra = table.slurm.extra if table.slurm else ()
    if table.each_node and any(one.partition("=")[0] == _NODELIST for one in extra):
        what = "cannot be set together with --nodelist in extra"
        yield raw.problem(place, what, hint="remove one of them")
