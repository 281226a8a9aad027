"""Run ``compatgate bundle``: export, sign, pull and verify the gate's state as one file."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from compatgate.cli.attest import read_key_file
from compatgate.cli.commands import Group
from compatgate.cli.gate import Operations, open_rooms
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput
from compatgate.gate_client import make_client
from compatgate.kit import clock
from compatgate.kit.cli.options import DATABASE, FORMAT, repeat
from compatgate.kit.cli.output import print_answer, read_bytes, write_output
from compatgate.kit.cli.usage import action
from compatgate.service.audit.keys import signer_maker
from compatgate.service.matrix.snapshots.snapshot import LARGEST_BUNDLE, load_bundle

_PULL_S = 60.0


@action(
    "export matrix, evidence and overlay facts to a file",
    """\
-o, --output FILE = -  output file (default: standard output)
--revision N           revision of the matrix (default: the latest)
--sign URI             sign with this key, as in serve --signing-key
--signing-public-key FILE  public key (PEM) of an external signing key
--valid DURATION       sign an end of its validity, for example 7d (default: none)
""",
    DATABASE,
    revision={"type": int},
)
def _export(args: argparse.Namespace) -> int:
    for name in ("valid", "signing_public_key"):
        if getattr(args, name) and not args.sign:
            raise BadInput("needs --sign", field=f"--{name.replace('_', '-')}")
    valid_for = parse_duration(args.valid, field="--valid") if args.valid else None
    sign = None
    if args.sign:
        from compatgate.service.gate.far.bundles import sign_bundle

        public = args.signing_public_key
        held = read_key_file(public, "--signing-public-key") if public else None
        sign = signer_maker(args.sign, held)[0]
    with open_rooms(args) as rooms:
        content = rooms.gate.export_bundle(
            args.revision, issued=sign is not None, valid_for=valid_for
        )
    write_output(args.output, sign_bundle(content, sign()) if sign else content)
    return 0


@action(
    "download the bundle of a gate if the bundle is new and trusted",
    """\
server: URL           URL of the gate
--to FILE (required)  bundle file to replace
--key FILE ... (required)  public key that is trusted (PEM or JSON Web Key Set); may be repeated
--token TOKEN         access token (default: $COMPATGATE_TOKEN)
--every DURATION      repeat at this interval, for example 60s; print errors and continue
--allow-older         accept an older bundle; for use after the gate was restored from a backup
""",
    FORMAT,
    epilog="""\
Replaces the whole file after the signature is verified. Refuses an unsigned, damaged or older
bundle, and then keeps the file. exit status: 0 new or unchanged, 2 refused, 3 no answer
""",
)
def _pull(args: argparse.Namespace) -> int:
    from compatgate.service.gate.far.bundles import read_bundle_keys

    keys = read_bundle_keys(args.key)
    return repeat(lambda: _pull_once(args, keys), args.every)


def _pull_once(args: argparse.Namespace, keys: Any) -> int:
    from compatgate.service.gate.far.bundles import (
        apply_bundle,
        confirm_bundle,
        present_bundle,
        read_trusted,
    )

    path = Path(args.to)
    present = present_bundle(path, keys)
    request = Operations.show_bundle.request().as_bytes()
    with make_client(args.server, args.token, _PULL_S) as gate:
        answer = gate.exchange(request, if_none_match=present.etag if present else None)
    if answer.not_modified and present is not None:
        confirm_bundle(path)
        version, changed, what = present.version, False, "unchanged"
    else:
        new = read_trusted(answer.value, f"the bundle of {args.server}", keys)
        pulled = apply_bundle(path, present, new, allow_older=args.allow_older)
        version, changed = pulled.after, pulled.changed
        what = f"was revision {pulled.before.revision}" if pulled.before else "new"
        what = what if changed else "unchanged"
    body = {"revision": version.revision, "evidence": version.evidence, "changed": changed}
    return print_answer(args.format, body, f"{args.to}: revision {version.revision} ({what})")


@action(
    "verify a bundle and list its content",
    """\
FILE            bundle file
--key FILE ...  public key; verify that it signed the bundle; may be repeated
""",
    FORMAT,
)
def _show(args: argparse.Namespace) -> int:
    if args.key:
        from compatgate.service.gate.far.bundles import read_bundle_keys, read_trusted

        content = read_bytes(args.file, "FILE", LARGEST_BUNDLE)
        trusted = read_trusted(content, args.file, read_bundle_keys(args.key))
        bundle, key_id = trusted.bundle, trusted.key_id
    else:
        bundle, key_id = load_bundle(args.file), None
    payload = bundle.payload
    kinds = Counter(type(item.document).__struct_config__.tag for item in payload.documents)
    report: dict[str, Any] = {
        "sha256": bundle.sha256,
        "format": payload.format,
        "revision": payload.revision,
        "made_at": payload.made_at,
        "issued_at": clock.iso(payload.issued_at) if payload.issued_at else None,
        "valid_until": clock.iso(payload.valid_until) if payload.valid_until else None,
        "targets": kinds["Target"],
        "entries": kinds["Entry"],
        "waivers": kinds["Waiver"],
        "evidence": len(payload.evidence),
        "facts": payload.facts,
        "facts_match": bundle.facts_match,
        "overlays": [overlay.name for overlay in payload.overlays],
        "signed": bool(bundle.signatures),
        "signed_by": list(bundle.signatures),
        "verified": key_id,
    }
    texts = {key: ", ".join(v) if isinstance(v, list) else v for key, v in report.items()}
    lines = [f"{key:<12} {text}" for key, text in texts.items()]
    if not bundle.facts_match:
        lines.append(
            "the facts of this program differ from those of the exporting gate: answers may differ"
        )
    return print_answer(args.format, report, "\n".join(lines))


run = Group({"export": _export, "pull": _pull, "show": _show})
