"""Run ``compatgate hook``: answer Terraform, and sign requests to webhooks.

``terraform`` is the program of Terraform's ``external`` data source. It reads a JSON object of
strings from standard input and prints one on standard output. A denial is an answer as well, for
a postcondition to judge; an error has a status that is not 0 and its reason on standard error.

Source: Terraform Registry, hashicorp/external, data source ``external``: "External Program
Protocol".
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput, quote_error
from compatgate.kit.cli.parser import add_server, server_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from compatgate.check.deciders import Decider

EXAMPLES = """\
examples:
  echo '{"target": "prod-a100", "stack": "cuda=12.4"}' | compatgate hook terraform
  compatgate hook sign --secret ci=ci.key --url https://gate.example/hooks/generic question.json
"""
ACTIONS = {
    "terraform": (
        "compatgate.service.webhooks.cli:terraform",
        "answer Terraform's external data source",
    ),
    "sign": (
        "compatgate.service.webhooks.cli:sign",
        "print the header that signs a request to a webhook",
    ),
}


_LARGEST = 1024 * 1024
_FILES = ("lock", "sbom")
_TERRAFORM_HELP = """\
the query, each value text:
  target or pool   the target's name; or driver=550.54.15,gpu=L4
  stack            cuda=12.4,torch=2.4.1+cu124
  image            its reference; a server reads it
  lock             path of a lockfile, read here; stated versions of stack win
  sbom             path of a bill of materials, CycloneDX or SPDX, read here
  set              what if: driver=580.95.05

the result, each value text:
  decision         allow, deny or unknown
  allowed          true or false
  reason           why, and the fix
  verdict, mode, target, id, and url of the verdict where a server was asked

exit status: 0 answered (a denial too), 2 bad input, 3 no answer.
"""


def add_terraform_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _TERRAFORM_HELP
    add = parser.add_argument
    add_server(parser, what="targets", timeout_s=10)
    add("--bundle", metavar="FILE", help="decide from this bundle")
    add("--database", metavar="URL", help="use this database (default: $COMPATGATE_DATABASE)")


def run_terraform(args: argparse.Namespace) -> int:
    """Answer the query on standard input.

    Raises:
        BadInput: the query, or a file that it names, is malformed.
        NotFound: the target does not exist.
        Unavailable: the gate does not answer.
    """
    import msgspec

    from compatgate.check.deciders import choose_decider
    from compatgate.service.webhooks.questions import question_of

    query = _query()
    files = {name: query.pop(name, "") for name in _FILES}
    question = question_of(query, "query")
    args.facts, args.target_server = None, server_of(args)
    decider = choose_decider(args)
    try:
        if any(files.values()):
            question = _with_files(question, files, args, decider)
        verdict = decider.decide([question])
    finally:
        decider.close()
    server = args.server or (args.target_server if "target" in question else None)
    print(msgspec.json.encode(_result(verdict, server)).decode())
    return 0


def _with_files(
    question: dict[str, Any], files: Mapping[str, str], args: argparse.Namespace, decider: Decider
) -> dict[str, Any]:
    """Return the question with the stack of a lockfile and a bill of materials, as for `check`."""
    from compatgate.check.deciders import pools_of
    from compatgate.check.stack_sources import read_files, read_platforms

    for name, path in files.items():
        if path == "-":
            raise BadInput(
                "cannot be read: standard input already contains the query", field=f"query.{name}"
            )
    args.target = question.get("target")
    pools = [question["pool"]] if "pool" in question else []
    asked = (lambda: pools_of(args)) if args.target else None
    facts = decider.facts()
    platforms = read_platforms(pools, asked, question.get("set", {}), facts.gpus)
    stated = question.get("stack", {})
    lock, sbom = (files[name] or None for name in _FILES)
    return {**question, "stack": read_files(lock, sbom, platforms, stated, facts.packages).stack}


def _query() -> dict[str, str]:
    import msgspec

    from compatgate.strict_json import DECODE_ERRORS

    raw = sys.stdin.buffer.read(_LARGEST + 1)
    hint = 'a JSON object of text, like {"target": "prod-a100", "stack": "cuda=12.4"}'
    try:
        query = msgspec.json.decode(raw[:_LARGEST], type=dict[str, str])
    except (*DECODE_ERRORS, msgspec.ValidationError) as error:
        raise BadInput(
            f"is not a query of Terraform: {quote_error(error)}", field="query", hint=hint
        ) from None
    return query


def _result(verdict: Mapping[str, Any], server: str | None) -> dict[str, str]:
    from compatgate.service.webhooks import questions

    link = ""
    if server:
        link = f"{server.rstrip('/').removesuffix('/api/v1')}/v/{verdict['id']}"
    return {
        "decision": questions.decision_of(verdict),
        "allowed": "true" if verdict["allowed"] else "false",
        "reason": questions.reason_of(verdict, link),
        "verdict": verdict["verdict"],
        "mode": verdict["mode"],
        "target": verdict["target"] or "",
        "id": verdict["id"],
        "url": link,
    }


_SIGN_EXAMPLES = """\
example:
  url=https://gate.example/hooks/generic
  curl -s "$url" -H 'Content-Type: application/json' --data-binary @question.json \\
    -H "$(compatgate hook sign --secret ci=ci.key --url "$url" question.json)"
"""


def add_sign_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _SIGN_EXAMPLES
    parser.add_argument(
        "--secret",
        required=True,
        metavar="NAME=FILE",
        help="signing key, as in serve --hook-secret (NAME=env:VARIABLE)",
    )
    parser.add_argument("--url", required=True, help="URL of the request, with its query")
    parser.add_argument(
        "body", metavar="FILE", help='file with the exact body ("-": standard input)'
    )


def run_sign(args: argparse.Namespace) -> int:
    """Print the header that signs a request.

    Raises:
        BadInput: the key or the body cannot be read, or the URL is none.
    """
    from urllib.parse import urlsplit

    from compatgate.kit.cli.output import read_bytes
    from compatgate.service.webhooks.signatures import HEADER, read_secrets, sign

    (secret,) = read_secrets([args.secret], "--secret")
    parts = urlsplit(args.url)
    if parts.scheme not in ("http", "https") or not parts.path:
        hint = "like https://gate.example/hooks/generic"
        raise BadInput("is not a webhook URL", field="--url", value=args.url, hint=hint)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    body = read_bytes(args.body, "FILE")
    print(f"{HEADER}: {sign(secret.key, int(time.time()), 'POST', path, body)}")
    return 0
