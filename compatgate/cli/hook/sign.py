"""``compatgate hook sign``: the header that signs a request to a deploy webhook."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

_EXAMPLES = """\
example:
  url=https://gate.example/hooks/generic
  curl -s "$url" -H 'Content-Type: application/json' --data-binary @question.json \\
    -H "$(compatgate hook sign --secret ci=ci.key --url "$url" question.json)"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--secret",
        required=True,
        metavar="NAME=FILE",
        help="signing key, as in serve --hook-secret (NAME=env:VARIABLE)",
    )
    parser.add_argument("--url", required=True, help="URL of the request, with its query")
    parser.add_argument("body", metavar="FILE", help='the body as it is sent ("-": standard input)')


def run(args: argparse.Namespace) -> int:
    """Print the header.

    Raises:
        BadInput: the key or the body cannot be read, or the URL is none.
    """
    from urllib.parse import urlsplit

    from compatgate.cli.check.observed import read_bytes
    from compatgate.gate.hooks.signatures import HEADER, read_secrets, sign

    (secret,) = read_secrets([args.secret], "--secret")
    parts = urlsplit(args.url)
    if parts.scheme not in ("http", "https") or not parts.path:
        hint = "like https://gate.example/hooks/generic"
        raise BadInput("is no address of a hook", field="--url", value=args.url, hint=hint)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    body = read_bytes(args.body, "FILE")
    print(f"{HEADER}: {sign(secret.key, int(time.time()), 'POST', path, body)}")
    return 0
