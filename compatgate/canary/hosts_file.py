"""Reads ``hosts.toml``: the staging hosts of a worker, with endpoints and credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta, Struct

from compatgate.canary.hosts import CLUSTERS, Host, Quiet, Slurm, Tls
from compatgate.canary.hosts_kubernetes import KubernetesTable, settings_of
from compatgate.canary.hosts_kubernetes import mistakes as kubernetes_mistakes
from compatgate.canary.hosts_slurm import SlurmTable
from compatgate.canary.hosts_slurm import mistakes as slurm_mistakes
from compatgate.canary.toml import read_toml, refused
from compatgate.documents.nodes import RawDocument
from compatgate.documents.problems import DocumentProblem
from compatgate.documents.problems import Path as Place
from compatgate.documents.specs import (
    ENDPOINT_PATTERN,
    LINE_PATTERN,
    NAME_PATTERN,
    TIME_PATTERN,
)

_Line = Annotated[str, Meta(pattern=LINE_PATTERN)]
_Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
_Time = Annotated[str, Meta(pattern=TIME_PATTERN)]
_Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_LEAST = {
    "slurm": '[host.slurm] work = "/shared/compatgate"',
    "kubernetes": '[host.kubernetes] namespace = "compatgate-canary"',
}
"""The least that is to be said of a host of each of `CLUSTERS`."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class TlsTable(_Table, frozen=True):
    """``[host.tls]``; paths are relative to the file."""

    ca: _Line
    cert: _Line
    key: _Line


class QuietTable(_Table, frozen=True):
    """``[[host.quiet]]``."""

    start: _Time
    end: _Time
    days: Annotated[tuple[_Day, ...], Meta(max_length=7)] = ()
    timezone: _Line = "UTC"


class HostTable(_Table, frozen=True):
    """``[[host]]``."""

    name: _Name
    executor: Literal["docker", "process", "slurm", "kubernetes"] = "docker"
    endpoint: Annotated[str, Meta(pattern=ENDPOINT_PATTERN)] | None = None
    tls: TlsTable | None = None
    gpu: _Line | None = None
    driver: _Line | None = None
    slots: Annotated[int, Meta(ge=1, le=1024)] = 1
    devices: Literal["request", "cdi"] = "request"
    build_network: bool = False
    health: Literal["local", "none"] | None = None
    quiet: Annotated[tuple[QuietTable, ...], Meta(max_length=64)] = ()
    slurm: SlurmTable | None = None
    kubernetes: KubernetesTable | None = None


class HostsFile(_Table, frozen=True):
    """The whole of a ``hosts.toml``."""

    host: Annotated[tuple[HostTable, ...], Meta(min_length=1, max_length=1024)]


def read_hosts(path: Path) -> list[Host]:
    """The hosts of a file, in its order.

    Raises:
        NotFound: there is no such file.
        ManyProblems: every mistake in it, with file, field and value.
    """
    written, raw = read_toml(path, "hosts", HostsFile)
    problems = [p for i, table in enumerate(written.host) for p in _meaningless(table, raw, i)]
    names = [table.name for table in written.host]
    for index, name in enumerate(names):
        if name in names[:index]:
            place: Place = ("host", index, "name")
            problems.append(raw.problem(place, f"{name} is taken", value=name))
    hosts = [_host(table, path.parent) for table in written.host]
    for index, host in enumerate(hosts):
        problems += _missing_files(host, raw, index)
    if problems:
        raise refused(path, problems)
    return hosts


def _host(table: HostTable, folder: Path) -> Host:
    fields = msgspec.structs.asdict(table)
    if tls := table.tls:
        fields["tls"] = Tls(
            ca=str(folder / tls.ca), cert=str(folder / tls.cert), key=str(folder / tls.key)
        )
    if slurm := table.slurm:
        fields["slurm"] = Slurm(**msgspec.structs.asdict(slurm))
    if kubernetes := table.kubernetes:
        fields["kubernetes"] = settings_of(kubernetes, folder)
    fields["health"] = table.health or ("none" if table.executor in CLUSTERS else "local")
    fields["quiet"] = tuple(Quiet(**msgspec.structs.asdict(quiet)) for quiet in table.quiet)
    return Host(**fields)


def _missing_files(host: Host, raw: RawDocument, index: int) -> list[DocumentProblem]:
    if host.tls is None:
        return []
    return [
        raw.problem(("host", index, "tls", field), f"there is no file {path}", value=path)
        for field, path in msgspec.structs.asdict(host.tls).items()
        if not Path(path).is_file()
    ]


def _meaningless(table: HostTable, raw: RawDocument, index: int) -> list[DocumentProblem]:
    """What a schema cannot say."""
    found: list[DocumentProblem] = []

    def problem(field: str, what: str, hint: str) -> None:
        value = getattr(table, field, None)
        shown = value if isinstance(value, str) else None
        found.append(raw.problem(("host", index, field), what, value=shown, hint=hint))

    if table.executor != "docker":
        for field in ("endpoint", "tls"):
            if getattr(table, field) is not None:
                problem(field, f"the {table.executor} executor has no engine", "leave it out")
        if table.devices == "cdi":
            what = f"the {table.executor} executor asks no engine for GPUs"
            problem("devices", what, "leave it out")
        if table.build_network:
            problem("build_network", f"the {table.executor} executor builds none", "leave it out")
    elif table.endpoint and table.endpoint.startswith("tcp://"):
        _check_tcp(table, problem)
    elif table.tls is not None:
        problem("tls", "is for an endpoint on TCP", "tcp://host:2376")
    found += _about_clusters(table, raw, index)
    if table.driver and not table.gpu:
        problem("driver", "is stated without a gpu", "name the GPU as well")
    for number, quiet in enumerate(table.quiet):
        place: Place = ("host", index, "quiet", number)
        if quiet.start == quiet.end:
            found.append(raw.problem((*place, "end"), "is the start", value=quiet.end))
        if not _is_timezone(quiet.timezone):
            what = f"{quiet.timezone!r} is not a time zone"
            hint = "an IANA name like Europe/Berlin"
            found.append(raw.problem((*place, "timezone"), what, value=quiet.timezone, hint=hint))
    return found


def _about_clusters(table: HostTable, raw: RawDocument, index: int) -> Iterator[DocumentProblem]:
    here: Place = ("host", index)
    for kind, least in _LEAST.items():
        given = getattr(table, kind)
        if table.executor != kind and given:
            what = f"is not for {table.executor}"
            yield raw.problem((*here, kind), what, hint=f'executor = "{kind}"')
        elif table.executor == kind and given is None:
            yield raw.problem((*here, kind), "is missing", hint=f"at least {least}")
    if table.executor in CLUSTERS and table.health == "local":
        what = "the GPUs are the nodes', not this machine's"
        yield raw.problem((*here, "health"), what, value="local", hint='health = "none"')
    if table.executor == "slurm" and table.slurm:
        for wrong in slurm_mistakes(table.slurm, table.gpu):
            place: Place = (*here, "slurm", wrong.field)
            yield raw.problem(place, wrong.problem, value=wrong.value, hint=wrong.hint)
    if table.executor == "kubernetes" and table.kubernetes:
        for fault in kubernetes_mistakes(table.kubernetes):
            place = (*here, "kubernetes", *fault.place)
            yield raw.problem(place, fault.problem, value=fault.value, hint=fault.hint)


def _check_tcp(table: HostTable, problem: Callable[[str, str, str], None]) -> None:
    try:
        parts = urlsplit(table.endpoint or "")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        problem("endpoint", "names no host and port", "like tcp://stage-1:2376")
    elif table.tls is None and host not in _LOOPBACK:
        problem(
            "endpoint",
            "an engine on TCP without TLS gives its host to everybody on the network",
            "add tls = {ca = ..., cert = ..., key = ...}, or use ssh://",
        )


def _is_timezone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return False
    return True
