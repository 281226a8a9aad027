"""Run ``compatgate hook``: sign requests to webhooks."""

from __future__ import annotations

import argparse
import time
from urllib.parse import urlsplit

from compatgate.cli.commands import Group
from compatgate.errors import BadInput
from compatgate.kit.cli.output import read_bytes
from compatgate.kit.cli.usage import action
from compatgate.kit.http.signatures import HEADER, read_secrets, sign


@action(
    "print the header that signs a request to a webhook",
    """\
--secret NAME=FILE (required)  signing key, as in serve --hook-secret (NAME=env:VARIABLE)
--url URL (required)  URL of the request, with its query
body: FILE            file with the exact body ("-": standard input)
""",
    epilog="""\
example:
  url=https://gate.example/hooks/generic
  curl -s "$url" -H 'Content-Type: application/json' --data-binary @question.json \\
    -H "$(compatgate hook sign --secret ci=ci.key --url "$url" question.json)"
""",
)
def run_sign(args: argparse.Namespace) -> int:
    """Print the header that signs a request."""
    (secret,) = read_secrets([args.secret], "--secret")
    parts = urlsplit(args.url)
    if parts.scheme not in ("http", "https") or not parts.path:
        hint = "like https://gate.example/hooks/generic"
        raise BadInput("is not a webhook URL", field="--url", value=args.url, hint=hint)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    body = read_bytes(args.body, "FILE")
    print(f"{HEADER}: {sign(secret.key, int(time.time()), 'POST', path, body)}")
    return 0


run = Group({"sign": run_sign})
