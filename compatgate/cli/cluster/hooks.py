"""Run ``compatgate hook``: sign requests to webhooks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
examples:
  compatgate hook sign --secret ci=ci.key --url https://gate.example/hooks/generic question.json
"""
ACTIONS = {
    "sign": (
        "compatgate.cli.cluster.hooks:sign",
        "print the header that signs a request to a webhook",
    ),
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
    """Print the header that signs a request."""
    from urllib.parse import urlsplit

    from compatgate.kit.cli.output import read_bytes
    from compatgate.kit.http.signatures import HEADER, read_secrets, sign

    (secret,) = read_secrets([args.secret], "--secret")
    parts = urlsplit(args.url)
    if parts.scheme not in ("http", "https") or not parts.path:
        hint = "like https://gate.example/hooks/generic"
        raise BadInput("is not a webhook URL", field="--url", value=args.url, hint=hint)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    body = read_bytes(args.body, "FILE")
    print(f"{HEADER}: {sign(secret.key, int(time.time()), 'POST', path, body)}")
    return 0
