"""Answer ``check --batch``: read questions line by line, in constant memory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec

from compatgate.check.deciders import Decider, choose_decider
from compatgate.core.rule import EXIT_ALLOWED, EXIT_BAD_INPUT, exit_code, worst_exit
from compatgate.errors import BadInput, CompatgateError, Unavailable, quote_error
from compatgate.kit.cli.output import open_input
from compatgate.strict_json import DECODE_ERRORS


def run_batch(args: argparse.Namespace) -> int:
    """Answer every line; return 2 if one is malformed, else the exit status of the worst."""
    names = (
        *("target", "pool", "nvidia_smi", "node_labels", "probe"),
        *("stack", "set", "image", "lock", "sbom", "show_at"),
        *("read_wheels", "cached_wheels"),
    )
    stated = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name)]
    if stated:
        what = "cannot be combined with options for the question: each line has its own"
        raise BadInput(what, field="--batch", hint=f"omit {', '.join(stated)}")
    if args.output or any(form not in ("text", "json") for form in args.format):
        what = "cannot be combined with --batch, which prints JSON lines on standard output"
        option = "--output" if args.output else "--format"
        raise BadInput(what, field=option, value=args.output or args.format)
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    worst = EXIT_ALLOWED
    write = sys.stdout.write
    with closing(choose_decider(args)) as decider:
        for number, line in _lines(args.batch):
            status, answer = _answer(line, number, decider, decode)
            worst = worst_exit(worst, status)
            write(encode(answer).decode() + "\n")
            if args.batch == "-":
                sys.stdout.flush()
    return worst


def _answer(line: bytes, number: int, decider: Decider, decode: Any) -> tuple[int, dict[str, Any]]:
    try:
        try:
            body = decode(line)
        except DECODE_ERRORS as error:
            hint = 'one JSON object per line, like {"pool": {...}, "stack": {...}}'
            raise BadInput(f"the line is not JSON: {quote_error(error)}", hint=hint) from None
        if not isinstance(body, dict):
            raise BadInput("must be a JSON object", value=body)
        verdict = decider.decide([body])
    except Unavailable:
        raise
    except CompatgateError as error:
        problem = {  # in the form of the REST API (RFC 9457)
            "type": f"https://compatgate.dev/problems/{error.slug}",
            "title": error.slug.replace("-", " ").capitalize(),
            "status": error.status,
            "detail": error.detail,
            "field": error.field,
            "hint": error.hint,
        }
        return EXIT_BAD_INPUT, {"error": problem, "line": number}
    return exit_code(verdict["verdict"], allowed=verdict["allowed"]), verdict


def _lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines, without blank lines at the end."""
    blank: list[tuple[int, bytes]] = []
    with open_input(path, "--batch") as file:
        for number, line in enumerate(file, 1):
            blank.append((number, line))
            if line.strip():
                yield from blank
                blank.clear()
