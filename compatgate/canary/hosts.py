"""Staging hosts: where canaries may run, as the worker's ``hosts.toml`` declares them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Tls(Struct, frozen=True):
    """Files of a TLS client, for an engine on TCP."""

    ca: str
    cert: str
    key: str


class Quiet(Struct, frozen=True):
    """When a host takes no new run.

    Attributes:
        days: ``mon`` to ``sun``; () is every day.
        start: ``HH:MM``; with an ``end`` before it, it lasts over midnight.
        timezone: IANA name.
    """

    start: str
    end: str
    days: tuple[str, ...] = ()
    timezone: str = "UTC"


class Host(Struct, frozen=True):
    """A staging host.

    Attributes:
        executor: ``docker`` or ``process``.
        endpoint: of the engine, ``unix:///var/run/docker.sock``, ``tcp://host:2376``,
            ``ssh://user@host``; None: the executor's default.
        gpu: SKU as written, None for a host without GPUs.
        driver: that the host has, where known; what a run measures decides.
        slots: GPUs that runs may take (a run takes as many as its suite needs, at least one);
            without GPUs, how many runs at once.
        devices: how GPUs are asked for: Docker's device request, or CDI names.
        health: where GPU health and the kernel log are read: ``local``, on the worker's machine;
            ``none``, nowhere, which the evidence says.
    """

    name: str
    executor: Literal["docker", "process"] = "docker"
    endpoint: str | None = None
    tls: Tls | None = None
    gpu: str | None = None
    driver: str | None = None
    slots: int = 1
    devices: Literal["request", "cdi"] = "request"
    health: Literal["local", "none"] = "local"
    quiet: tuple[Quiet, ...] = ()
