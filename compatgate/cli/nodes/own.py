"""What the driver of a machine says of itself, as a node is reported."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from compatgate.errors import BadInput


def own_report(probe: str | None, name: str | None) -> dict[str, Any]:
    """A node by its driver's own report.

    Args:
        probe: a file of ``compatgate probe``, ``-`` for standard input; None: this machine.
        name: of the node; None: this machine's host name, where it is looked at itself.

    Raises:
        BadInput: the file cannot be read, is no probe of a host, or the node has no name.
    """
    if probe is None:
        from compatgate.catalog import load_facts
        from compatgate.discovery.probe import probe_machine

        document: Mapping[str, Any] = probe_machine(load_facts()).to_json()
        name = name or socket.gethostname().lower()
    else:
        from compatgate.cli.check.observed import read_text
        from compatgate.discovery.probe import read_probe

        document = read_probe(read_text(probe, "--probe"), origin=probe)
    if not name:
        hint = "a probe does not say which node it was made on"
        raise BadInput("which node is it of?", field="--name", hint=hint)
    return {"name": name, "probe": driver_report(document)}


def driver_report(document: Mapping[str, Any]) -> dict[str, Any]:
    """The driver and GPUs of a probe document.

    Raises:
        BadInput: it is not about one host.
    """
    host = document.get("host")
    gpus = host.get("gpus") if isinstance(host, dict) else None
    if not isinstance(host, dict) or not isinstance(gpus, list):
        raise BadInput("says nothing of a host", field="--probe", hint="write it with probe -o")
    found: dict[str, Any] = {"gpus": []}
    if host.get("driver"):
        found["driver"] = host["driver"]
    for gpu in gpus:
        if not isinstance(gpu, dict) or "nodes" in gpu:
            hint = "report nodes by their labels: compatgate k8s nodes --report"
            raise BadInput("is about several nodes", field="--probe", hint=hint)
        found["gpus"].append({"gpu": gpu.get("product"), "count": gpu.get("devices", 1)})
    return found
