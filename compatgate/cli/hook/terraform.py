"""``compatgate hook terraform``: the program of Terraform's ``external`` data source.

It reads a JSON object of strings from standard input and prints one on standard output. A denial is
an answer as well, for a postcondition to judge; what is no answer is an error, with a status that
is not 0 and the reason on standard error.

Source: Terraform Registry, hashicorp/external, data source ``external``: "External Program
Protocol".
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from compatgate.cli.parser import add_server, server_of
from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

_LARGEST = 1024 * 1024
_HELP = """\
the query, each value text:
  target or pool   the target's name; or driver=550.54.15,gpu=L4
  stack            cuda=12.4,torch=2.4.1+cu124
  image            its reference; a server reads it
  set              what if: driver=580.95.05

the result, each value text:
  decision         allow, deny or unknown
  allowed          true or false
  reason           why, and the fix
  verdict, mode, target, id, and url of the verdict where a server was asked

exit status: 0 answered (a denial too), 2 bad input, 3 nobody answers.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _HELP
    add = parser.add_argument
    add_server(parser, what="targets", timeout_s=10)
    add("--bundle", metavar="FILE", help="use a bundle")
    add("--database", metavar="URL", help="use this database (default: $COMPATGATE_DATABASE)")


def run(args: argparse.Namespace) -> int:
    """Answer the query on standard input.

    Raises:
        BadInput: the query is malformed.
        NotFound: there is no such target.
        Unavailable: nobody answers.
    """
    import msgspec

    from compatgate.cli.check.deciders import decider_for
    from compatgate.gate.hooks.question import question_of

    question = question_of(_query(), "query")
    args.facts, args.target_server = None, server_of(args)
    decider = decider_for(args)
    try:
        verdict = decider.decide([question])
    finally:
        decider.close()
    server = args.server or (args.target_server if "target" in question else None)
    print(msgspec.json.encode(_result(verdict, server)).decode())
    return 0


def _query() -> dict[str, str]:
    import msgspec

    from compatgate.not_json import NOT_JSON

    raw = sys.stdin.buffer.read(_LARGEST + 1)
    hint = 'a JSON object of text, like {"target": "prod-a100", "stack": "cuda=12.4"}'
    try:
        query = msgspec.json.decode(raw[:_LARGEST], type=dict[str, str])
    except (*NOT_JSON, msgspec.ValidationError) as error:
        raise BadInput(f"is not what Terraform sends: {error}", field="query", hint=hint) from None
    return query


def _result(verdict: Mapping[str, Any], server: str | None) -> dict[str, str]:
    from compatgate.gate.hooks import words

    link = ""
    if server:
        base = server.rstrip("/").removesuffix("/api/v1")
        link = f"{base}/v/{verdict['id']}"
    return {
        "decision": words.decision(verdict),
        "allowed": "true" if verdict["allowed"] else "false",
        "reason": words.reason(verdict, link),
        "verdict": verdict["verdict"],
        "mode": verdict["mode"],
        "target": verdict["target"] or "",
        "id": verdict["id"],
        "url": link,
    }
