"""The options of ``compatgate check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.formats import FORMATS
from compatgate.cli.parser import add_overlays, add_server

if TYPE_CHECKING:
    import argparse

_EXAMPLES = """\
exit status:
  0  allowed      1  denied      2  bad input or usage      3  no decision

examples:
  a described pool; needs no server and no database
    compatgate check --pool driver=535.104.05,gpu=A100-SXM4-80GB \\
                     --stack torch=2.4.1+cu121,cudnn=9.1.0
  a target of the blessed matrix, in CI
    compatgate check --target prod-a100 --server https://gate.example --format github \\
                     --stack cuda=12.4,cudnn=9.1.0,arch=sm_80+compute_90
  what if the driver were newer?
    compatgate check --target prod-a100 --stack cuda=12.8 --set driver=570.124.06
  what would it have said on the 3rd?
    compatgate check --target prod-a100 --stack cuda=12.4,torch=2.4.1+cu124 --at 2026-11-03
  the GPUs of another host
    ssh node17 nvidia-smi -q | compatgate check --nvidia-smi - --stack cuda=12.4
  every kind of GPU node of a cluster
    kubectl get nodes -o json | compatgate check --node-labels - --stack cuda=12.4
  a lockfile, with reports for a code host and for people
    compatgate check --target prod-a100 --lock uv.lock --format github \\
                     --format sarif=compatgate.sarif --format markdown=comment.md
  a lockfile whose newest packages have no record yet
    compatgate check --pool driver=580.95.05,gpu=L4 --lock uv.lock --read-wheels
  many questions, one JSON line each
    compatgate check --batch questions.jsonl > verdicts.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command: where, what, who decides, and the form of the answer."""
    parser.epilog = _EXAMPLES
    add_where(parser.add_argument_group("where it is to run"))
    what = parser.add_argument_group("what is to run")
    _what(what)
    _files(what)
    who = parser.add_argument_group("who decides (default: the facts; for --target the database)")
    add_who(who)
    who.add_argument(
        "--at",
        metavar="REVISION|TIME",
        help="what would have been said: the matrix of that revision, or the matrix, evidence"
        " and waivers of that time, such as 2026-11-03 (its end), by today's facts; not logged",
    )
    answer = parser.add_argument_group("the answer")
    answer.add_argument(
        "--format",
        metavar="NAME[=FILE]",
        action="append",
        default=[],
        type=_form,
        help=f"{', '.join(FORMATS)}; with a file it goes there; may be repeated (text)."
        " github also writes the job summary and the step's outputs",
    )
    answer.add_argument(
        "--output",
        metavar="FILE",
        help="output file for formats without a file (default: standard output)",
    )
    answer.add_argument(
        "--show-at",
        metavar="FILE[:LINE]",
        help="where sarif, github and gitlab-codequality show what no lockfile says, such as the"
        " Dockerfile of --image",
    )
    answer.add_argument(
        "--fail-open",
        action="store_true",
        help="exit with 0 instead of 3 if there is no decision, with a warning",
    )
    answer.add_argument(
        "--batch",
        metavar="FILE.jsonl",
        help='answer a file ("-": standard input) of request bodies as in POST /api/v1/gate, one'
        " JSON verdict a line, in order",
    )


def _form(text: str) -> str:
    """The type of ``--format``."""
    from argparse import ArgumentTypeError

    if text.partition("=")[0] not in FORMATS or text.endswith("="):
        raise ArgumentTypeError(f"'{text}' is not NAME or NAME=FILE of {', '.join(FORMATS)}")
    return text


def add_where(group: argparse._ArgumentGroup) -> None:
    """The options that say where something is to run."""
    group.add_argument("--target", metavar="NAME", help="target of the blessed matrix")
    group.add_argument(
        "--pool",
        metavar="driver=V,gpu=G[,os=O]",
        action="append",
        default=[],
        help="a described pool (gpu: product or compute capability; os: linux, windows or wsl);"
        " with --probe, --nvidia-smi or --node-labels it overrides or chooses what they say",
    )
    group.add_argument(
        "--nvidia-smi",
        metavar="FILE",
        help='GPUs and driver from what nvidia-smi printed ("-": standard input)',
    )
    group.add_argument(
        "--node-labels",
        metavar="FILE",
        help="pools from Kubernetes node labels (output of kubectl get nodes -o json)"
        ' ("-": standard input)',
    )
    group.add_argument(
        "--probe",
        metavar="FILE",
        help="GPUs, driver and stack from what compatgate probe wrote, or GPUs and driver from an"
        ' AICR snapshot ("-": standard input)',
    )


def _what(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--stack",
        metavar="NAME=VERSION,...",
        action="append",
        default=[],
        help="components, and GPU code as arch=sm_80+sm_90+compute_90; may be repeated",
    )
    group.add_argument(
        "--set",
        metavar="NAME=VALUE,...",
        action="append",
        default=[],
        help="what if: a component or a property of the pool set to another value; an empty value"
        " removes a component; may be repeated",
    )


def _files(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--image",
        metavar="REF",
        help="the stack in an image, read from its registry without pulling it; what it shows wins"
        " over what is stated",
    )
    group.add_argument(
        "--lock",
        metavar="FILE",
        action="append",
        default=[],
        help="the stack in a lockfile (requirements.txt, uv.lock, poetry.lock, pdm.lock,"
        ' pylock.toml, conda\'s; "-": standard input); what it leaves open is unknown, never a'
        " pass; may be repeated, and each is a question of its own",
    )
    group.add_argument(
        "locks", metavar="LOCKFILE", nargs="*", help="lockfile, as commit hooks pass it"
    )
    group.add_argument(
        "--skip-unrelated",
        action="store_true",
        help="pass over lockfiles without any component of a GPU stack, and say so, instead of"
        " exiting with 3",
    )
    group.add_argument(
        "--sbom",
        metavar="FILE",
        help="stack from an SBOM: CycloneDX or SPDX (extra: compatgate[sbom])",
    )
    add_wheels(group)


def add_wheels(group: argparse._ActionsContainer) -> None:
    """Add the options that say whether wheels without a record are measured."""
    group.add_argument(
        "--read-wheels",
        action="store_true",
        help="measure the wheels of GPU packages without a record, from the index that the lockfile"
        " names or the one that pip and uv are set up with; what is measured is kept for ever",
    )
    group.add_argument(
        "--cached-wheels",
        action="store_true",
        help="like --read-wheels, but use only earlier measurements; ask no index",
    )


def add_who(group: argparse._ArgumentGroup) -> None:
    """The options that say who knows targets and facts."""
    add_server(group, what="targets", timeout_s=10)
    group.add_argument("--bundle", metavar="FILE", help="use a bundle")
    group.add_argument(
        "--database", metavar="URL", help="use this database (default: $COMPATGATE_DATABASE)"
    )
    add_overlays(group)
