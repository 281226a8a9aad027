"""Compare the stacks of hosts: the common value of each measured component, and who differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from compatgate.canary.run import Env
from compatgate.core.components import COMPONENTS
from compatgate.core.versions import Version, parse_version
from compatgate.errors import BadInput

GPU, TRANSPORT = "gpu", "transport"
_IMPRECISE_COMPONENTS = ("cuda", "python")
"""Components that some sources state less precisely (the driver API knows 12.4, not the update)."""


class HostStack(Struct, frozen=True):
    """Components measured on one host.

    Attributes:
        values: by component; several where its measurements disagree.
    """

    host: str
    values: dict[str, tuple[str, ...]]
    run: str | None = None


class ComponentDrift(Struct, frozen=True):
    """Values of one component on all hosts.

    Attributes:
        majority: value of most hosts; None if two values are equally frequent.
        differ: host to its other value; every host if there is no majority.
        silent: hosts that did not measure the component; neither agreement nor difference.
    """

    component: str
    majority: str | None
    agree: tuple[str, ...]
    differ: dict[str, str]
    silent: tuple[str, ...]


def host_stack(host: str, envs: Iterable[Env], run: str | None = None) -> HostStack:
    """Return the stack of a host from the env lines that were printed there."""
    results: dict[str, dict[str, None]] = {}
    for env in envs:
        for component, version in env.versions.items():
            results.setdefault(component, {})[version] = None
        if env.driver:
            results.setdefault("driver", {})[env.driver] = None
        if env.gpus:
            names = Counter(
                f"{gpu.name} MIG {gpu.mig}" if gpu.mig and gpu.mig not in gpu.name else gpu.name
                for gpu in env.gpus
            )
            gpus = " + ".join(f"{count} x {name}" for name, count in sorted(names.items()))
            results.setdefault(GPU, {})[gpus] = None
        transports = env.other.get("transports")
        if isinstance(transports, dict) and transports:
            results.setdefault(TRANSPORT, {})[", ".join(sorted(map(str, transports)))] = None
    return HostStack(host, {name: tuple(values) for name, values in results.items()}, run)


def compare_hosts(stacks: Sequence[HostStack]) -> list[ComponentDrift]:
    """Compare hosts, component by component.

    If a host is named twice, the first entry counts.
    """
    hosts = {stack.host: stack for stack in reversed(stacks)}
    names = {name for stack in hosts.values() for name in stack.values}
    order = [GPU, *COMPONENTS, TRANSPORT]
    return [_compare_component(name, hosts) for name in order if name in names]


def _compare_component(name: str, hosts: dict[str, HostStack]) -> ComponentDrift:
    stated = {host: stack.values[name] for host, stack in hosts.items() if name in stack.values}
    keys = _comparison_keys(name, stated)
    counted = Counter(keys.values()).most_common()
    tied = len(counted) > 1 and counted[0][1] == counted[1][1]
    most = None if tied else counted[0][0]
    agree = tuple(sorted(host for host, key in keys.items() if key == most))
    return ComponentDrift(
        component=name,
        majority=_join_values(stated[agree[0]]) if agree else None,
        agree=agree,
        differ={host: _join_values(stated[host]) for host in sorted(keys) if host not in agree},
        silent=tuple(sorted(set(hosts) - set(stated))),
    )


def _comparison_keys(name: str, stated: dict[str, tuple[str, ...]]) -> dict[str, frozenset[object]]:
    """Return keys that are equal if two hosts have equal values, however versions are written."""
    parsed = {host: [_parse_value(name, text) for text in texts] for host, texts in stated.items()}
    versions = [v for values in parsed.values() for v in values if isinstance(v, Version)]
    places = min((len(version.parts) for version in versions), default=0)

    def key(value: Version | str) -> object:
        if isinstance(value, str):
            return value
        return value.at(places) if name in _IMPRECISE_COMPONENTS else value.key

    return {host: frozenset(map(key, values)) for host, values in parsed.items()}


def _parse_value(name: str, text: str) -> Version | str:
    try:
        return parse_version(name, text) if name in COMPONENTS else text
    except BadInput:
        return text


def _join_values(values: Sequence[str]) -> str:
    return " and ".join(values)
