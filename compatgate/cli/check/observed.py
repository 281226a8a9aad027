"""Pools and stack of a host that was looked at: a probe document, or output of ``nvidia-smi``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compatgate.core.gpus import resolve_gpu
from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from compatgate.core.facts import Facts

LARGEST = 32 * 1024 * 1024
"""Bytes of the largest file that is read."""


class Observed(Struct, frozen=True):
    """What was observed on a host.

    Attributes:
        pools: bodies of pools, one per kind of GPU.
        stack: components; only a probe knows them.
    """

    pools: tuple[dict[str, Any], ...]
    stack: dict[str, Any]
    notes: tuple[str, ...]
    table: Any

    def choose(self, stated: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The pools to ask about: the observed ones, overridden or chosen by what is stated.

        Raises:
            BadInput: more than one pool is stated.
        """
        if not stated:
            return list(self.pools)
        if len(stated) > 1:
            raise BadInput("give one --pool with an observed host", hint="it overrides all pools")
        changes = stated[0]
        pools = list(self.pools)
        if "gpu" in changes and pools:
            wanted = resolve_gpu(str(changes["gpu"]), self.table).sku
            pools = [pool for pool in pools if self._sku(pool) == wanted] or pools[:1]
        return [{**pool, **changes} for pool in pools or [{}]]

    def as_changes(self) -> dict[str, Any]:
        """The observed pool as changes to a target's: what if its nodes were like this one?

        Raises:
            BadInput: there are several.
        """
        if len(self.pools) > 1:
            names = ", ".join(str(pool.get("name")) for pool in self.pools)
            raise BadInput(
                f"the host has several kinds of GPU: {names}",
                field="--nvidia-smi",
                hint="with a target, leave it out and choose with --set driver=..,gpu=..",
            )
        return {key: value for key, value in self.pools[0].items() if key != "name"}

    def _sku(self, pool: dict[str, Any]) -> str | None:
        try:
            return resolve_gpu(str(pool.get("gpu")), self.table).sku
        except BadInput:
            return None


def read_observed(args: argparse.Namespace, facts: Facts) -> Observed:
    """Read ``--probe`` and ``--nvidia-smi``; the latter's pools win.

    With a target, a probe gives the stack alone, and nvidia-smi the driver and GPU of one of the
    target's nodes.

    Raises:
        BadInput: a file cannot be read, or is not what it should be; or it shows no GPU and none
            is stated.
    """
    pools: tuple[dict[str, Any], ...] = ()
    stack: dict[str, Any] = {}
    notes: list[str] = []
    if args.probe and args.nvidia_smi == args.probe == "-":
        raise BadInput("standard input can be read once", field="--probe")
    if args.probe:
        from compatgate.discovery.probe import read_probe

        document = read_probe(read_text(args.probe, "--probe"), origin=_origin(args.probe))
        pools, stack = tuple(document["pools"]), document["stack"]
        notes += [str(c.get("message")) for c in _list(document, "conflicts")]
    if args.nvidia_smi:
        from compatgate.discovery.nvidia_smi import parse_nvidia_smi
        from compatgate.discovery.nvidia_smi.pools import disagreements, observed_pools

        text = read_text(args.nvidia_smi, "--nvidia-smi")
        report = parse_nvidia_smi(text, origin=_origin(args.nvidia_smi))
        found = observed_pools(report, facts.gpus)
        pools = tuple(pool.to_body() for pool in found.pools)
        notes += [*found.notes, *(c.message for c in disagreements(report, facts))]
    if not pools and not args.pool and not args.target:
        raise BadInput(
            "the probe found no GPU",
            field=_origin(args.probe),
            hint="describe the pool with --pool driver=..,gpu=..",
        )
    return Observed(pools, stack, tuple(dict.fromkeys(notes)), facts.gpus)


def _list(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = document.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _origin(path: str) -> str:
    return "standard input" if path == "-" else path


def read_text(path: str, option: str) -> str:
    """A file, or standard input for ``-``, as text; bytes that are not UTF-8 are replaced.

    Raises:
        BadInput: it cannot be read, or is too large.
    """
    data = read_bytes(path, option)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # PowerShell's "nvidia-smi > file"
        return data.decode("utf-16", "replace")
    return data.decode("utf-8", "replace")


def read_bytes(path: str, option: str) -> bytes:
    """A file, or standard input for ``-``.

    Raises:
        BadInput: it cannot be read, or is too large.
    """
    try:
        if path == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(LARGEST + 1)
    except OSError as error:
        raise BadInput(f"cannot read '{path}': {error.strerror}", field=option) from None
    if len(data) > LARGEST:
        raise BadInput(f"'{path}' is larger than {LARGEST >> 20} MiB", field=option)
    return data
