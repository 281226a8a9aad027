"""The pools of a target, from whoever knows it: a server, a bundle or the database."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from compatgate.errors import Unavailable

if TYPE_CHECKING:
    import argparse

    from compatgate.core.target import Target


def pools_of(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The pools of ``args.target`` as bodies of requests.

    Raises:
        NotFound: there is no such target.
        Unavailable: the server or the database does not answer.
    """
    if server := _server_of(args):
        return _from_server(server, args)
    if args.bundle:
        from compatgate.gate.bundle import load_bundle

        return _bodies(load_bundle(args.bundle).snapshot().target(args.target))
    from compatgate.cli.database import opened

    with opened(args, overlays=args.facts) as gate:
        return _bodies(gate.snapshot().target(args.target))


def _server_of(args: argparse.Namespace) -> str | None:
    if "target_server" in args:  # check has settled it
        return args.target_server or None
    if args.server or args.bundle or args.database:
        return args.server or None
    return os.environ.get("COMPATGATE_SERVER") or None


def _from_server(url: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    from compatgate.cli.remote import make_client
    from compatgate.client.operations import Operations

    timeout = getattr(args, "timeout", 10.0)
    with make_client(url, args.token, timeout, retries=0) as client:
        document = client.send(Operations.show_target.request(args.target).plain())
    pools = (document.get("spec") or {}).get("pools")
    if not isinstance(pools, list):
        raise Unavailable("the gate answered with something else than a target", field=url)
    keys = ("name", "driver", "gpu", "os", "cpu")
    return [{key: pool[key] for key in keys if pool.get(key)} for pool in pools]


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
