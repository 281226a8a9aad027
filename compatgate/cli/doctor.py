"""Run ``compatgate doctor``: find what is wrong with an installation, and the way back."""

from __future__ import annotations

import argparse
import os

from compatgate.kit.cli.options import DATABASE, FORMAT
from compatgate.kit.cli.parser import add_overlays
from compatgate.kit.cli.usage import command
from compatgate.service.recovery.backup.checks import print_checks


@command(
    DATABASE,
    """\
--server URL         URL of a running gate (default: $COMPATGATE_SERVER)
--token TOKEN        access token (default: $COMPATGATE_TOKEN)
--state DIR          state folder of a replica, as for serve (default: $COMPATGATE_STATE, else the
                     folder that serve uses, if it exists)
--tls-cert FILE      certificate of the server (PEM)
--registry HOST ...  registry to check; may be repeated (default: $COMPATGATE_REGISTRIES)
--hosts FILE         hosts.toml with the Docker engines to check
--signing-key URI    key that signs verdicts (default: $COMPATGATE_SIGNING_KEY)
""",
    add_overlays,
    FORMAT,
    epilog="""\
examples:
  compatgate doctor
  compatgate doctor --database postgresql://gate@db.example/gate --server https://gate.example
  compatgate doctor --hosts hosts.toml --tls-cert gate.pem --format json

One line for each check: ok, warn, fail or skip, what was found, and what to do. Nothing is changed.
compatgate db verify checks every row and the whole audit chain.
exit status: 0 nothing failed, 1 a check failed, 2 bad input
""",
)
def run(args: argparse.Namespace) -> int:
    """Print the checks; return 1 if one failed."""
    from compatgate.service.recovery.backup.doctor import Subjects, examine

    read = os.environ.get
    named = [item.strip() for item in read("COMPATGATE_REGISTRIES", "").split(",")]
    subjects = Subjects(
        database=args.database,
        overlays=args.facts,
        state=args.state,
        server=args.server or read("COMPATGATE_SERVER") or None,
        token=args.token or read("COMPATGATE_TOKEN") or None,
        certificate=args.tls_cert,
        registries=tuple(filter(None, [*args.registry, *named])),
        hosts=args.hosts,
        signing_key=args.signing_key or read("COMPATGATE_SIGNING_KEY") or None,
    )
    return print_checks(list(examine(subjects)), as_json=args.format == "json")
