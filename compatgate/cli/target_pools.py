"""The pools of a target, from whoever knows it: a server, a bundle or the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.cli.parser import server_of
from compatgate.errors import Unavailable

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client
    from compatgate.core.target import Target

_MEMBERS = ("name", "driver", "gpu", "os", "cpu")


def pools_of(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the pools of ``args.target`` as bodies of requests.

    Raises:
        NotFound: there is no such target.
        Unavailable: the server or the database does not answer.
    """
    server = args.target_server if "target_server" in args else server_of(args)
    if server:  # check has settled which
        from compatgate.cli.remote import make_client

        timeout = getattr(args, "timeout", 10.0)
        with make_client(server, args.token, timeout, retries=0) as client:
            return _ask(client, args.target)
    if args.bundle:
        from compatgate.gate.bundle import load_bundle

        return _bodies(load_bundle(args.bundle).snapshot().target(args.target))
    from compatgate.cli.local import Local

    with Local.open(args.database, overlays=args.facts) as local:
        return _ask(local.client, args.target)


def _ask(gate: Client, target: str) -> list[dict[str, Any]]:
    from compatgate.cli.gate import ask
    from compatgate.client.operations import Operations

    pools = (ask(gate, Operations.show_target, target).get("spec") or {}).get("pools")
    if not isinstance(pools, list):
        what = "the gate answered with something else than a target"
        raise Unavailable(what, field=gate.base_url)
    return [{key: pool[key] for key in _MEMBERS if pool.get(key)} for pool in pools]


def _bodies(target: Target) -> list[dict[str, Any]]:
    return [
        {
            "name": pool.name,
            "gpu": pool.gpu.sku if pool.gpu else None,
            "driver": pool.driver.text if pool.driver else None,
            "os": pool.os,
            "cpu": pool.cpu,
        }
        for pool in target.pools
    ]
