"""Run ``compatgate triage``: name the causes of a pasted error, and check a stack for them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from compatgate.check.cli import FACTS_DECIDER, PLACES, STACK, complete_decider
from compatgate.check.deciders import Decider, choose_decider
from compatgate.check.question import read_questions
from compatgate.core.stated_text import complete_question
from compatgate.core.triage import MAX_TEXT, compare_verdict, find_causes
from compatgate.errors import BadInput
from compatgate.kit.cli.options import FORMAT
from compatgate.kit.cli.output import print_answer, read_text
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.cli.usage import command, titled

EXIT_NOT_RECOGNISED = 3
_HERE = {
    "fails": "fails here",
    "warns": "warns here",
    "unknown": "cannot decide for this stack",
    "holds": "holds for this stack; look for another cause",
    "not-applicable": "does not apply to this stack",
}


def _ask_no_files(parser: argparse.ArgumentParser) -> None:
    """State the options of ``check`` that name files, which are not offered here."""
    parser.set_defaults(lock=[], sbom=None, image=None, read_wheels=False, cached_wheels=False)
    parser.set_defaults(dockerfile=None, build_arg=[], build_stage=None)


@command(
    'file: FILE|-  error or log to read ("-": standard input)',
    titled("target or pool", PLACES),
    titled("stack", STACK),
    FACTS_DECIDER,
    FORMAT,
    _ask_no_files,
    epilog="""\
exit status:
  0  something was recognised      2  bad input      3  nothing was recognised, or no gate answers

examples:
  the output of a program that failed
    python train.py 2>&1 | tee run.log; compatgate triage run.log
  what a container engine said
    docker run --gpus all IMAGE 2>&1 | compatgate triage -
  also: does the cause hold for this stack on this pool, and which change helps
    compatgate triage run.log --stack torch=2.4.1+cu121 --pool driver=535.104.05,gpu=A100-SXM4-80GB
    compatgate triage run.log --stack torch=2.4.1+cu121 --target prod-a100 --format json

Versions, driver and GPU that the text itself states are used where no option names them.
"likely" means that other causes print the same words: the command after "confirm:" decides.
The text never leaves this machine; --server receives only the stack. Signatures are facts:
compatgate facts show error_signatures; overlays may add some. Xid lines: compatgate health.
""",
)
def run(args: argparse.Namespace) -> int:
    """Print the causes; return 0 when there is one, else 3."""
    places = (args.file, args.probe, args.nvidia_smi, args.node_labels)
    if places.count("-") > 1:
        raise BadInput("standard input can be read only once", field="FILE")
    complete_decider(args)
    text = read_text(args.file, "FILE", MAX_TEXT)
    with closing(choose_decider(args, recorded=False)) as decider:
        causes = find_causes(text, decider.facts().error_signatures)
        stated = _complete_question(args, text, decider) if causes else {}
        if args.stack or args.set or _is_placed(args):
            # a wrong stack is refused even if no cause was found
            asked = read_questions(args, decider.facts).questions[0]
            causes = compare_verdict(causes, decider.decide(asked.bodies))
    found = [cause.to_json() for cause in causes]
    used = ", ".join(f"{name}={value}" for name, value in stated.items())
    parts = [f"stated in the text, and used: {used}"] if stated else []
    nothing = "nothing was recognised; compatgate recognises only errors of the GPU stack"
    parts += map(_format_cause, found) if found else [nothing]
    print_answer(args.format, {"causes": found, "stated": stated}, "\n\n".join(parts))
    return 0 if found else EXIT_NOT_RECOGNISED


def _is_placed(args: argparse.Namespace) -> bool:
    return any((args.target, args.pool, args.probe, args.nvidia_smi, args.node_labels))


def _complete_question(args: argparse.Namespace, text: str, decider: Decider) -> dict[str, str]:
    """Use what the text states where no option says otherwise; return what is used.

    A question needs both a stack and a place: with one of them missing, none is asked.
    """
    question = {"stack": args.stack or args.probe, "pool": _is_placed(args)}
    whole, stated = complete_question(question, text, decider.facts())
    for option in ("stack", "pool"):
        if isinstance(values := whole[option], dict):
            setattr(args, option, [",".join(f"{name}={text}" for name, text in values.items())])
    return stated


def _format_cause(cause: Mapping[str, Any]) -> str:
    lines = [f"{cause['id']} ({cause['confidence']})", f"  {cause['message']}"]
    lines.append(f"  seen:    {strip_controls(cause['seen'])}")
    if cause["rule"]:
        here = cause.get("here")
        lines.append(f"  rule:    {cause['rule']}{' ' + _HERE[here['outcome']] if here else ''}")
        lines += [f"           {one['message']}" for one in here["findings"]] if here else []
    lines.append(f"  confirm: {cause['next']}")
    for fix in cause["fixes"]:
        mark = "verified: " if fix.get("verified") else ""
        lines.append(f"  fix:     {mark}{fix['message']}")
    return "\n".join(lines)
