"""Read a host that was observed: by a probe, by the output of nvidia-smi, or by node labels."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.discovery.node_labels import LARGEST as LARGEST_LABELS
from compatgate.errors import BadInput
from compatgate.kit.cli.output import read_text

if TYPE_CHECKING:
    from compatgate.discovery.probe import Probe


class Host(Struct, frozen=True):
    """Observations of a host: a pool for each kind of GPU; a probe has a stack, too."""

    pools: tuple[dict[str, Any], ...]
    stack: dict[str, Any]
    notes: tuple[str, ...]
    gpus: Gpus

    def choose(self, stated: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the observed pools, overridden or selected by stated pools."""
        if not stated:
            return list(self.pools)
        if len(stated) > 1:
            hint = "the values of --pool override all pools of the host"
            raise BadInput("only one --pool can be combined with an observed host", hint=hint)
        changes = stated[0]
        pools = list(self.pools)
        if "gpu" in changes and pools:
            wanted = resolve_gpu(str(changes["gpu"]), self.gpus).sku
            pools = [pool for pool in pools if self._sku(pool) == wanted] or pools[:1]
        overridden = []
        for pool in pools or [{}]:
            node = {**pool.get("node", {}), **changes.get("node", {})}
            overridden.append({**pool, **changes, **({"node": node} if node else {})})
        return overridden

    def as_changes(self) -> dict[str, Any]:
        """Return the observed pool as changes to a target's pools."""
        if len(self.pools) > 1:
            names = ", ".join(str(pool.get("name")) for pool in self.pools)
            what = f"the host has several kinds of GPU: {names}"
            hint = "with --target, choose one with --set driver=..,gpu=.. instead"
            raise BadInput(what, field="--nvidia-smi or --node-labels", hint=hint)
        pool = self.pools[0]
        changes = {key: pool[key] for key in pool if key not in ("name", "count", "node")}
        return {**changes, **pool.get("node", {})}

    def _sku(self, pool: dict[str, Any]) -> str | None:
        try:
            return resolve_gpu(str(pool.get("gpu")), self.gpus).sku
        except BadInput:
            return None


def read_host(args: argparse.Namespace, facts: Facts) -> Host:
    """Read ``--probe``, and ``--nvidia-smi`` or ``--node-labels``, whose pools win.

    With a target, a probe gives only the stack; the others give driver and GPU of one of the
    target's nodes.
    """
    pools: tuple[dict[str, Any], ...] = ()
    stack: dict[str, Any] = {}
    notes: list[str] = []
    given = (args.probe, args.nvidia_smi, args.node_labels)
    if given.count("-") > 1:
        raise BadInput("standard input can be read only once", field="--probe")
    if args.nvidia_smi and args.node_labels:
        raise BadInput("--nvidia-smi and --node-labels cannot be used together")
    if args.probe:
        from compatgate.discovery.probe import read_probe

        document = read_probe(read_text(args.probe, "--probe"), origin=_host_origin(args.probe))
        pools, stack = tuple(document["pools"]), document["stack"]
        # without the conflicts that the stack turns into findings
        conflicts, findings = document.get("conflicts"), stack.get("conflicts")
        for one in conflicts if isinstance(conflicts, list) else ():
            message = str(one.get("message")) if isinstance(one, dict) else ""
            if message and not (isinstance(findings, list) and message in findings):
                notes.append(message)
    if args.nvidia_smi or args.node_labels:
        printed = read_printed(args, facts)
        pools = tuple(pool.to_body() for pool in printed.pools)
        notes += [*printed.host["notes"], *(conflict.message for conflict in printed.conflicts)]
    if not pools and not args.pool and not args.target:
        hint = "describe the pool with --pool driver=..,gpu=.."
        raise BadInput("the probe found no GPU", field=_host_origin(args.probe), hint=hint)
    return Host(pools, stack, tuple(dict.fromkeys(notes)), facts.gpus)


def read_printed(args: argparse.Namespace, facts: Facts) -> Probe:
    """Read ``--nvidia-smi`` or ``--node-labels``."""
    from compatgate.discovery.probe import probe_labels, probe_output

    if path := args.nvidia_smi:
        return probe_output(read_text(path, "--nvidia-smi"), facts, origin=_host_origin(path))
    path = args.node_labels
    text = read_text(path, "--node-labels", LARGEST_LABELS)
    return probe_labels(text, facts, origin=_host_origin(path))


def _host_origin(path: str) -> str:
    return "standard input" if path == "-" else path
