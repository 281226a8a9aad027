"""Run the ``compatgate`` command: find the sub-command, run it, and map errors to exit statuses.

Only the module of the chosen sub-command is imported, so that ``compatgate check`` is fast enough
for a commit hook.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from compatgate.errors import CompatgateError, quote_error

if TYPE_CHECKING:
    from compatgate.kit.cli.parser import Parser

PROG = "compatgate"
COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("check.cli", "decide whether a stack may run on a target or pool"),
    "solve": ("check.solve", "find the newest stacks that pass on targets or pools"),
    "lock": ("check.lock", "lock a project with uv for targets or pools"),
    "inspect": (
        "cli.inspect",
        "show the stack in an image, lockfile, SBOM, wheel, library or folder",
    ),
    "probe": (
        "cli.inspect:run_probe",
        "detect driver, GPUs and stack of a machine, process, container or node",
    ),
    "health": ("cli.health", "find GPU errors in a kernel log, with actions"),
    "triage": (
        "cli.explain:run_triage",
        "find the cause of an error, and check a stack for that cause",
    ),
    "explain": ("cli.explain", "explain a rule: check, reason and fix"),
    "env": ("cli.env", "print build variables for machines without a GPU"),
    "require": ("cli.env:run_require", "check NVIDIA_REQUIRE_* expressions against a host"),
    "facts": ("cli.facts", "show, verify and compare vendor facts; measure wheels"),
    "target": (
        "cli.matrix.documents:run_target",
        "list and change targets; predict what a driver would break",
    ),
    "plan": (
        "cli.gate.comparison:run_plan",
        "plan an upgrade of driver or CUDA: effects, canary runs and rollout order",
    ),
    "upgrade": ("cli.nodes:run_upgrade", "propose, start, stop and roll back upgrades"),
    "matrix": ("cli.matrix", "import, export and compare the blessed matrix"),
    "nodes": ("cli.nodes", "list nodes and their reported state"),
    "notices": ("cli.audit:run_notices", "list incidents and act on them"),
    "canary": ("cli.canary", "run canaries on staging hosts and judge measurements"),
    "serve": ("cli.serve", "run the gate as a service"),
    "k8s": ("cli.cluster", "manage a Kubernetes cluster: manifests, nodes, audit of running pods"),
    "attest": ("cli.attest", "sign a verdict"),
    "verify": ("cli.attest:run_verify", "verify a signed verdict, offline"),
    "worker": ("cli.worker", "run canaries on staging hosts"),
    "bundle": ("cli.gate.bundle", "export the gate's state for offline use"),
    "login": ("cli.access:run_login", "sign in to a gate as a person"),
    "logout": ("cli.access:run_logout", "end the session started by login"),
    "whoami": ("cli.access:run_whoami", "show the identity that the gate sees"),
    "token": ("cli.access:run_token", "create, list and revoke access tokens"),
    "audit": ("cli.audit", "read and verify audit log and decisions"),
    "report": ("cli.audit:REPORT", "report the decisions for a target, with today's verdicts"),
    "doctor": ("cli.db:run_doctor", "find problems of an installation, with fixes"),
    "db": ("cli.db", "create, migrate, back up, restore, verify and prune the database"),
}
"""Name to code, as of `load_command`, and help; listing imports no module."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_NEW_OBJECTS = 20_000
"""Garbage collection threshold: objects of the start stay; Python's 700 make it a tenth slower."""
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
_EXAMPLES = """\
exit status:
  0  done, or allowed      1  denied, or problems found      2  bad input or usage
  3  no decision, or no answer    130  interrupted    141  the output was closed

examples:
  compatgate check --pool driver=535.104.05,gpu=A100-SXM4-80GB --stack cuda=12.4,arch=sm_80
  nvidia-smi -q | compatgate check --nvidia-smi - --stack torch=2.4.1+cu121
  compatgate explain CG101
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status, which `_EXAMPLES` explains."""
    gc.set_threshold(_NEW_OBJECTS)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - to the end
    elif (sys.stdout.encoding or "").lower() != "utf-8":
        from compatgate.kit.cli.output import escape_unencodable

        escape_unencodable(sys.stdout)
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    except BrokenPipeError:
        _drop_output()
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return EXIT_INTERRUPTED
    except Exception as error:
        if os.environ.get("COMPATGATE_DEBUG", "") not in ("", "0"):
            raise
        return _report(error)
    return status


def _run(argv: list[str]) -> int:
    if not argv:
        print(_overview(), file=sys.stderr)
        return EXIT_USAGE
    name, rest = argv[0], argv[1:]
    if name in ("-h", "--help", "help"):
        if rest:
            return _run([rest[0], "--help"])
        print(_overview())
        return 0
    if name in ("-V", "--version"):
        from compatgate import version

        print(f"{PROG} {version()}")
        return 0
    if name not in COMMANDS:
        return _usage(name)
    if name in ("check", "canary"):
        from compatgate.gate_client import import_without

        # Since Python 3.11, typing has all that msgspec needs.
        import_without("msgspec", "typing_extensions")
    from compatgate.kit.cli.parser import load_command

    args = parser_of(name, rest[0] if rest else "").parse_args(rest)
    return load_command(COMMANDS[name][0]).run(args)


def _drop_output() -> None:
    """Discard unwritten output, so that Python does not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser_of(name: str, chosen: str = "") -> Parser:
    """Return the parser of a command in `COMMANDS`, of a group with the chosen action alone."""
    from compatgate.kit.cli.parser import Parser, load_command, sentence

    code, help_text = COMMANDS[name]
    parser = Parser(prog=f"{PROG} {name}", description=sentence(help_text), chosen=chosen)
    load_command(code).add_arguments(parser)
    return parser


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return f"""\
usage: {PROG} COMMAND [options]

Decide whether a GPU stack may run on a target, with reasons and fixes.

commands:
{chr(10).join(lines)}

'{PROG} COMMAND --help' explains a command; '{PROG} --version' shows the version.

{_EXAMPLES.rstrip()}"""


def _usage(name: str) -> int:
    from difflib import get_close_matches

    kind = "option" if name.startswith("-") else "command"
    near = get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(COMMANDS)}"
    print(f"error: unknown {kind} '{name}' ({hint})", file=sys.stderr)
    return EXIT_USAGE


def _report(error: Exception) -> int:
    from compatgate.kit.cli.output import strip_controls

    status = EXIT_USAGE
    if isinstance(error, CompatgateError):
        text, status = error.detail, error.exit_code
    elif isinstance(error, OSError) and error.errno in _NO_ROOM:
        _drop_output()
        text = f"cannot write {error.filename or 'the output'}: {error.strerror}"
    else:
        text = (
            f"unexpected {type(error).__name__}: {quote_error(error)} "
            "(a defect in compatgate; set COMPATGATE_DEBUG=1 for the traceback to report)"
        )
    print(f"error: {strip_controls(text)}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
