"""Run ``compatgate bundle``: export the gate's state to one file, to decide offline."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from compatgate.kit.cli.options import add_database, add_format
from compatgate.kit.cli.output import print_json
from compatgate.service.gate_client import open_gate

if TYPE_CHECKING:
    import argparse

_EXAMPLES = """\
examples:
  compatgate bundle export -o matrix.bundle
  compatgate bundle show matrix.bundle
  compatgate check --bundle matrix.bundle --target prod-a100 --stack cuda=12.4
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    export = actions.add_parser(
        "export", help="export matrix, evidence and overlay facts to a file"
    )
    export.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="output file (default: standard output)"
    )
    export.add_argument(
        "--revision", type=int, metavar="N", help="revision of the matrix (default: the latest)"
    )
    add_database(export)
    show = actions.add_parser("show", help="verify a bundle and list its content")
    show.add_argument("file", metavar="FILE", help="bundle file")
    add_format(show)


def run(args: argparse.Namespace) -> int:
    """Run an action.

    Raises:
        BadInput: a file cannot be written, or is not an undamaged bundle.
        NotFound: there is no such revision.
    """
    return _export(args) if args.action == "export" else _show(args)


def _export(args: argparse.Namespace) -> int:
    from compatgate.kit.cli.output import write_output

    with open_gate(args) as gate:
        content = gate.export_bundle(revision=args.revision)
    write_output(args.output, content)
    return 0


def _show(args: argparse.Namespace) -> int:
    from compatgate.service.gate.snapshot import load_bundle

    bundle = load_bundle(args.file)
    payload = bundle.payload
    kinds = Counter(type(item.document).__struct_config__.tag for item in payload.documents)
    report: dict[str, Any] = {
        "sha256": bundle.sha256,
        "format": payload.format,
        "revision": payload.revision,
        "made_at": payload.made_at,
        "targets": kinds["Target"],
        "entries": kinds["Entry"],
        "waivers": kinds["Waiver"],
        "evidence": len(payload.evidence),
        "facts": payload.facts,
        "facts_match": bundle.facts_match,
        "overlays": [overlay.name for overlay in payload.overlays],
        "signed": False,
    }
    if args.format == "json":
        print_json(report)
        return 0
    for key, value in report.items():
        print(f"{key:<12} {', '.join(value) if isinstance(value, list) else value}")
    if not bundle.facts_match:
        print(
            "the facts of this program differ from those of the exporting gate: answers may differ"
        )
    return 0
