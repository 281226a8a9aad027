"""Run ``compatgate attest`` and ``verify``: sign a verdict, and verify the signature.

``compatgate serve`` shares the options for keys.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

import msgspec

from compatgate.check.question import read_stack
from compatgate.core.evaluate import format_moment
from compatgate.core.rule import exit_code
from compatgate.discovery.cache import default_image_folder
from compatgate.discovery.registry.image_spec import is_digest, is_loopback, parse_reference
from compatgate.discovery.registry.limits import read_options
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, Unavailable
from compatgate.gate_client import make_client
from compatgate.kit import clock
from compatgate.kit.cli.options import FORMAT, SERVER, read_moment
from compatgate.kit.cli.output import (
    format_fields,
    print_answer,
    print_json,
    read_bytes,
    say,
    strip_controls,
    write_output,
)
from compatgate.kit.cli.parser import server_of
from compatgate.kit.cli.usage import command, titled
from compatgate.kit.clock import now
from compatgate.service.audit.attestations import SigningOptions
from compatgate.service.audit.envelope import (
    ExpectedStatement,
    VerificationFailed,
    VerifiedStatement,
    make_bundle,
    verify,
)
from compatgate.service.audit.keys import MAX_ENVELOPE_BYTES, read_keys, signer_maker
from compatgate.service.audit.statement import (
    DigestSet,
    digest_set,
    image_digest,
    stated_digest,
    to_plain,
)

if TYPE_CHECKING:
    from compatgate.client import Client

_IMAGE_S = 300.0
LARGEST_KEY = 256 * 1024
KEY = "COMPATGATE_SIGNING_KEY"
PUBLIC = "COMPATGATE_SIGNING_PUBLIC_KEY"
SIGNING = f"""\
--signing-key URI
    sign verdicts with this key: a PEM file that only its owner can read, env:VARIABLE, or an
    external key like hsm:2?label=gate or awskms:alias/gate (${KEY})
--signing-public-key FILE             public key (PEM) of an external signing key (${PUBLIC})
--attestation-validity DURATION = 7d
    validity of a signed verdict after its last decision, for example 12h
"""
VERIFYING = """\
--verifying-key FILE ...  additional public key to publish (a former or a future one); may be
                          repeated
"""
_FETCH_S = 10.0


@command(
    """\
signed content:
--verdict ID          id of a verdict
--target NAME         target of the blessed matrix, to decide now instead of --verdict
--image REF           image whose stack the gate reads
--stack NAME=VERSION,... ...  stated stack; the signature then covers the stack; may be repeated
""",
    titled(
        "decider and signer",
        SERVER,
        """\
--timeout SECONDS = 60  timeout of the gate in seconds
--database URL          use this database; needs --signing-key
""",
        SIGNING,
        timeout={"type": float},
    ),
    """\
output:
-o, --output FILE = -   file for the envelope (default: standard output)
--sigstore-bundle FILE  file for a Sigstore bundle of the envelope, as cosign and sigstore-js read
                        it
""",
    epilog="""\
exit status: that of the verdict, as of check (0 allowed, 1 denied, 3 no decision); 2 bad input

examples:
  a verdict that the gate gave before
    compatgate attest --server https://gate.example --verdict vd_... > verdict.json
  decide about an image, and sign
    compatgate attest --server https://gate.example --target prod-a100 \\
                      --image registry.example/team/app@sha256:... -o verdict.json
  the same as a Sigstore bundle in a file, for tools that do not know this one
    compatgate attest --server https://gate.example --verdict vd_... \\
                      -o verdict.json --sigstore-bundle verdict.sigstore.json
  without a server: decide from the database, sign with your own key
    compatgate attest --database gate.db --signing-key gate.pem --target prod-a100 \\
                      --stack cuda=12.4,torch=2.4.1+cu124
""",
)
def run(args: argparse.Namespace) -> int:
    """Sign a verdict; return the exit status of the verdict."""
    question = _read_question(args)
    with _connect_signer(args) as gate:
        verdict_id = gate.ask(question).id if question else args.verdict
        signed = gate.show_attestation(_check_id(verdict_id))
        keys = read_keys(msgspec.json.encode(gate.list_keys()), "keys of the gate")
    envelope = msgspec.json.encode(signed)
    found = verify(envelope, keys, ExpectedStatement(), now())
    key = next(key for key in keys if key.keyid == found.key_id)
    write_output(args.output, envelope + b"\n")
    if args.sigstore_bundle:
        write_output(args.sigstore_bundle, make_bundle(envelope, key) + b"\n")
    predicate = found.predicate
    return exit_code(predicate.verdict, allowed=predicate.allowed)


def _read_question(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return the question to ask first; None: the command names a verdict."""
    if args.sigstore_bundle == "-" == args.output:
        what = "standard output is for the envelope"
        raise BadInput(what, field="--sigstore-bundle", hint="-o FILE sets another path")
    asks = bool(args.target or args.image or args.stack)
    if bool(args.verdict) == asks:
        hint = "--verdict ID, or --target NAME with --image or --stack"
        raise BadInput("name a verdict or ask a question, not both", hint=hint)
    if args.verdict:
        _check_id(args.verdict)
        return None
    if not args.target or not (args.image or args.stack):
        raise BadInput("name a target and an image or stack", field="--target")
    stack = {"stack": read_stack(args.stack)} if args.stack else {}
    return {"target": args.target, **stack, **({"image": args.image} if args.image else {})}


@contextmanager
def _connect_signer(args: argparse.Namespace) -> Iterator[Client]:
    if url := server_of(args):
        if args.signing_key:
            raise BadInput("a server signs with its own key", field="--signing-key")
        with make_client(url, args.token, args.timeout) as client:
            yield client
        return
    from compatgate.web.local_gate import LocalClient

    signing, images = read_signing(args), None
    if args.image:  # the gate reads the named image, and no other
        from compatgate.service.gate.questions.images import ImageSettings, RegistryPlace

        place = RegistryPlace(parse_reference(args.image).registry)
        options = read_options(cache=default_image_folder())
        images = ImageSettings((place,), _IMAGE_S, options=options)
    with LocalClient.open(args.database, images=images, signing=signing) as local:
        yield local.client


def _check_id(text: str) -> str:
    if not re.fullmatch(r"vd_[0-9a-f]{32}", text):
        hint = "vd_ and 32 hexadecimal digits, as check shows it"
        raise BadInput(f"{text!r} is not a verdict id", field="--verdict", hint=hint)
    return text


def read_signing(args: argparse.Namespace) -> SigningOptions:
    """Read the keys now, so that errors show at the start."""
    valid_for = parse_duration(args.attestation_validity, field="--attestation-validity")
    uri = args.signing_key or os.environ.get(KEY) or None
    public = args.signing_public_key or os.environ.get(PUBLIC) or None
    others = [
        key
        for path in getattr(args, "verifying_key", ())
        for key in read_keys(read_key_file(path, "--verifying-key"), "--verifying-key")
    ]
    make, keys = None, others
    if uri:
        held = read_key_file(public, "--signing-public-key") if public else None
        make, own = signer_maker(uri, held)
        keys = [own, *others]
    elif args.signing_public_key:
        hint = "--verifying-key publishes one that does not sign"
        raise BadInput("needs --signing-key", field="--signing-public-key", hint=hint)
    published = tuple({key.keyid: key for key in keys}.values())
    return SigningOptions(make, published, valid_for)


def read_key_file(path: str, option: str) -> bytes:
    """Return a small file; a key in place of its name is not shown, for it may be private."""
    if "-----BEGIN" in path:
        what = "contains a key instead of a file name"
        raise BadInput(what, field=option, hint="name the file with the key")
    return read_bytes(path, option, LARGEST_KEY)


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
def run_verify(args: argparse.Namespace) -> int:
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
