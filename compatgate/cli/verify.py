"""Run ``compatgate verify``: check a signed verdict, offline."""

from __future__ import annotations

import argparse
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

from compatgate.check.question import read_stack
from compatgate.cli.attest import read_key_file
from compatgate.core.evaluate import format_moment
from compatgate.core.rule import exit_code
from compatgate.discovery.registry.image_spec import is_digest, is_loopback
from compatgate.errors import BadInput, Unavailable
from compatgate.kit import clock
from compatgate.kit.cli.options import FORMAT, read_moment
from compatgate.kit.cli.output import format_fields, print_answer, print_json, read_bytes
from compatgate.kit.cli.terminal import say, strip_controls
from compatgate.kit.cli.usage import command
from compatgate.service.audit.attestations.envelope import (
    MAX_ENVELOPE_BYTES,
    ExpectedStatement,
    VerificationFailed,
    VerifiedStatement,
    verify,
)
from compatgate.service.audit.attestations.keys import read_keys
from compatgate.service.audit.attestations.statement import (
    DigestSet,
    digest_set,
    image_digest,
    stated_digest,
    to_plain,
)

_FETCH_S = 10.0


@command(
    """\
envelope                  file with a DSSE envelope or a Sigstore bundle ("-": standard input)
trusted keys, at least one:
--key FILE ...            public key (PEM); may be repeated
--jwks FILE|URL ...       JSON Web Key Set; may be repeated
expected subject:
--image REF               image reference with digest
--digest sha256:...       image digest
--stack NAME=VERSION,...  stack of the verdict
--target NAME             target of the verdict
""",
    "--now TIME  verify as of this time (default: now)",
    FORMAT,
    epilog="""\
exit status:
  0  valid, about what was asked, and allowed
  1  denied; or refused: not signed by a trusted key, changed, expired, about something else
  2  bad input or usage      3   the verdict is not a decision, or a URL does not answer

examples:
  compatgate verify verdict.json --key gate.pub --target prod-a100 \\
                    --image registry.example/team/app@sha256:...
  compatgate verify verdict.json --jwks keys.json --stack cuda=12.4,torch=2.4.1+cu124
  compatgate verify verdict.json --digest sha256:... --target prod-a100 \\
                    --jwks https://gate.example/.well-known/jwks.json
""",
)
def run(args: argparse.Namespace) -> int:
    """Verify an attestation; ``--help`` lists the exit statuses."""
    if not args.key and not args.jwks:
        raise BadInput("name a trusted key", field="--key", hint="or --jwks")
    subjects = [f"--{name}" for name in ("image", "digest", "stack") if getattr(args, name)]
    if len(subjects) > 1:
        raise BadInput(f"use only one of {' and '.join(subjects)}")
    at = read_moment(args.now, "--now") or clock.now()
    try:
        keys = _keys(args)
        expected = ExpectedStatement(_subjects(args), args.target)
        data = read_bytes(args.envelope, "envelope", MAX_ENVELOPE_BYTES)
        found = verify(data, keys, expected, at)
    except VerificationFailed as error:
        body = {"valid": False, "reason": error.reason, "detail": error.problem, "hint": error.hint}
        if args.format == "json":
            print_json(body)
        else:
            hint = f" ({error.hint})" if error.hint else ""
            say(f"refused ({error.reason}): {error.problem}{hint}")
        return error.exit_code
    answer = {
        "valid": True,
        "reason": None,
        "verdict": found.predicate.verdict,
        "allowed": found.predicate.allowed,
        "key_id": found.key_id,
        "subjects": [to_plain(subject) for subject in found.subjects],
        "predicate_type": found.predicate_type,
        "predicate": to_plain(found.predicate),
    }
    print_answer(args.format, answer, lambda: _format(found))
    named = args.image or args.digest or args.stack
    if args.format == "text" and not named:
        say("note: no image, digest or stack was named: compare the subject yourself")
    return exit_code(found.predicate.verdict, allowed=found.predicate.allowed)


def _keys(args: argparse.Namespace) -> list[Any]:
    found = [key for path in args.key for key in read_keys(read_key_file(path, "--key"), "--key")]
    for place in args.jwks:
        remote = place.startswith(("https://", "http://"))
        data = _fetch(place) if remote else read_key_file(place, "--jwks")
        found += read_keys(data, "--jwks")
    return list({key.keyid: key for key in found}.values())


def _fetch(url: str) -> bytes:
    """Return a key set of a server, only over a connection that nobody can tamper with."""

    class Followed(HTTPRedirectHandler):
        """Check the target of a redirection like a URL that the user names."""

        def redirect_request(
            self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
        ) -> Any:
            _check_url(newurl)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    _check_url(url)
    try:
        with build_opener(Followed).open(url, timeout=_FETCH_S) as response:
            data: bytes = response.read(1 << 20)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise Unavailable(f"{url} does not answer: {reason}", field="--jwks") from None
    return data


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.username or parts.password:  # is not shown
        raise BadInput("the URL contains a user or password; public keys need none", field="--jwks")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.netloc)):
        what = "is not an https URL; keys are fetched only over https"
        raise BadInput(what, field="--jwks", value=url)


def _subjects(args: argparse.Namespace) -> tuple[DigestSet, ...] | None:
    if args.stack:
        return (stated_digest(read_stack([args.stack])),)
    if args.image:
        found = image_digest(args.image)
        if found is None:
            hint = "name it by its digest, app@sha256:..."
            what = "has no digest; a tag can move to another image"
            raise BadInput(what, field="--image", value=args.image, hint=hint)
        return (found,)
    if args.digest:
        if not is_digest(args.digest):
            raise BadInput("is not a digest", field="--digest", value=args.digest)
        return (digest_set(args.digest),)
    return None


def _format(found: VerifiedStatement) -> str:
    statement = found.predicate
    confirmed, end = format_moment(statement.confirmed_at), format_moment(statement.valid_until)
    allowed = "allowed" if statement.allowed else "denied"
    subjects = (f"{s.name} {n}:{v}" for s in found.subjects for n, v in s.digest.items())
    fields = {
        "verdict": f"{statement.verdict}, {allowed} ({statement.mode})",
        "about": ", ".join(subjects),
        "on": statement.target or "a described pool",
        "rests on": f"matrix revision {statement.matrix_revision}, {statement.id}",
        "decided": f"{confirmed}, valid until {end}",
        "signed by": found.key_id,
    }
    findings = [f"  {one.rule} {one.outcome}: {one.message}" for one in statement.findings]
    return strip_controls("\n".join([format_fields(fields), *findings]))
