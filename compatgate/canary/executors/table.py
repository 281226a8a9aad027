"""Kinds of executors, as ``hosts.toml`` names them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from compatgate.canary.executors.interface import Executor
from compatgate.canary.hosts import Host

EXECUTORS: dict[str, tuple[str, str]] = {
    "kubernetes": ("compatgate.canary.executors.kubernetes", "KubernetesExecutor"),
    "docker": ("compatgate.canary.executors.docker", "DockerExecutor"),
    "process": ("compatgate.canary.executors.process", "ProcessExecutor"),
    "slurm": ("compatgate.canary.executors.slurm", "SlurmExecutor"),
}
"""Kind to module and class; a module is imported when a host needs it."""


def open_executor(host: Host) -> Executor:
    """The executor of a host; it talks to the host when it is first asked something."""
    module, name = EXECUTORS[host.executor]
    make: Callable[[Host], Executor] = getattr(import_module(module), name)
    return make(host)
