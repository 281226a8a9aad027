"""Run ``compatgate lock``: let uv lock a project for a target, and write what the gate passes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from compatgate.check.cli import add_decider_options, add_wheel_options, complete_decider
from compatgate.check.solve import add_solve_places, read_base, read_solve_pools
from compatgate.core.rule import EXIT_DENIED, EXIT_NO_DECISION
from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from compatgate.check.deciders import Decider
    from compatgate.check.project import ProjectFile
    from compatgate.check.resolver import Pins
    from compatgate.check.stack_sources import Platforms
    from compatgate.core.facts import Facts
    from compatgate.core.facts.records import Record

Json = dict[str, Any]
_TORCH_INDEX = "https://download.pytorch.org/whl/{label}"
_MAX_TRIES = 20
_EXAMPLES = """\
The stacks of compatgate solve are tried in their order: uv resolves the project with the stack as
constraints, and the gate judges the lock. The first lock that passes is written.

exit status:
  0  a lock that passes was written      1  none passes, or uv finds a conflict with each stack
  2  bad input or usage                  3  no decision, or no answer

examples:
  compatgate lock --target prod-a100 --in requirements.in
  compatgate lock --target prod-a100 --in pyproject.toml --python 3.12 --out pylock.prod-a100.toml
  compatgate lock --target prod-a100 --in pyproject.toml --edit
  compatgate lock --pool driver=580.95.05,gpu=L4 --in requirements.in \\
                  --build-index https://mirror.example/whl/{label} -- --default-index https://...
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the project, places, resolver, decider and output."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--in",
        dest="source",
        metavar="FILE",
        required=True,
        help="requirements.in or pyproject.toml",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="the lock (default: pylock.toml beside the project's file)"
    )
    parser.add_argument(
        "--edit",
        action="store_true",
        help="print the edit of [tool.uv] that makes uv lock choose this stack; write no lock",
    )
    add_solve_places(parser)
    parser.add_argument(
        "--from",
        dest="base",
        metavar="STACK|LOCK",
        help="change as little as possible of this stack or lockfile",
    )
    parser.add_argument(
        "--python",
        metavar="VERSION",
        help="Python to resolve for (default: this machine's, where the project allows it)",
    )
    parser.add_argument(
        "--overrides", metavar="FILE", help="overrides of requirements, for uv --overrides"
    )
    parser.add_argument(
        "--build-index",
        metavar="[LABEL=]URL",
        action="append",
        default=[],
        help="index with builds of a label, such as cu126=https://...; {label} stands for it"
        f" (default: {_TORCH_INDEX}); none: the package index alone",
    )
    parser.add_argument(
        "--tries", metavar="N", type=int, default=5, help="stacks to try, 1 to 20 (default: 5)"
    )
    add_wheel_options(parser)
    add_decider_options(
        parser.add_argument_group("decider (default: the facts; for --target the database)")
    )
    parser.add_argument("options", metavar="-- OPTION", nargs="*", help="options for uv")


def run(args: argparse.Namespace) -> int:
    """Write the first lock that passes.

    Returns:
        0: written, or the edit was printed; 1: denied, or conflicts only; 3: no decision.

    Raises:
        BadInput: an option or the project's file is malformed.
        NotFound: there is no such target.
        Unavailable: uv is not installed, or the server or the database does not answer.
    """
    from compatgate.check.deciders import choose_decider

    complete_decider(args)
    if not 1 <= args.tries <= _MAX_TRIES:
        raise BadInput("must be from 1 to 20", field="--tries", value=args.tries)
    decider = choose_decider(args, recorded=False)
    try:
        return _Locking(args, decider).run()
    finally:
        decider.close()


class _Attempt(NamedTuple):
    """The exit status of an attempt, and other pins to try with the same stack."""

    status: int
    instead: Pins | None = None


class _Locking:
    """Locks one project."""

    def __init__(self, args: argparse.Namespace, decider: Decider) -> None:
        from compatgate.check.project import read_project
        from compatgate.check.stack_sources import read_platforms
        from compatgate.core.package_requirements import Platform

        self._args = args
        self._decider = decider
        self._facts: Facts = decider.facts()
        self._pools = read_solve_pools(args)
        self._platforms: Platforms = read_platforms(
            self._pools, self._target_pools if args.target else None, {}, self._facts.gpus
        )
        platform = Platform(self._platforms.os, self._platforms.cpu, None)
        self._project: ProjectFile = read_project(args.source, self._facts, platform.environment)
        self._indexes = _read_indexes(args.build_index)
        self._away: set[str] = set()

    def run(self) -> int:
        """Try the stacks in their order, and write the first lock that passes."""
        for note in (*self._project.notes, *self._platforms.remarks(self._args.source).values()):
            _say(f"note: {note if isinstance(note, str) else '; '.join(note)}")
        found = self._decider.solve(self._question(), self._pools)
        if not found["found"]:
            from compatgate.check.formats.solved import render_solved
            from compatgate.kit.cli.terminal import width_of

            print(render_solved(found, width_of(sys.stdout), colour=False))
            return EXIT_DENIED
        worst = EXIT_DENIED
        tried: list[dict[str, str]] = []
        for one in found["stacks"]:
            pins: Pins | None = self._pins(one["stack"])
            while pins and pins.versions not in tried and len(tried) < 2 * self._args.tries:
                tried.append(pins.versions)
                said = self._try(one["stack"], pins)
                if said.status == 0:
                    return 0
                worst = EXIT_NO_DECISION if said.status == EXIT_NO_DECISION else worst
                pins = said.instead
        _say("no lock was written: none of the stacks above gives one that passes")
        return worst

    def _target_pools(self) -> list[Json]:
        """Return the pools of the first target, which choose the platform."""
        from argparse import Namespace

        from compatgate.check.deciders import pools_of

        return pools_of(Namespace(**{**vars(self._args), "target": self._args.target[0]}))

    def _question(self) -> Json:
        wants = dict(self._project.wants)
        python = self._python()
        if python:
            wants["python"] = python
        body: Json = {"want": wants, "limit": self._args.tries}
        if self._args.target:
            body["targets"] = self._args.target
        if self._args.base:
            body["from"] = read_base(self._args.base, self._decider, self._pools)
        return body

    def _python(self) -> str:
        """Return the constraint on Python: as asked for, this machine's, or the project's."""
        from compatgate.core.matrix import parse_constraint
        from compatgate.core.versions import parse_version

        if self._args.python:
            parse_version("python", self._args.python)
            return str(self._args.python)
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        stated = self._project.python
        if not stated or parse_constraint("python", stated).allows(parse_version("python", ours)):
            return ours
        return stated

    def _pins(self, stack: Json) -> Pins:
        """Return the pins of a stack: the project's parts, and packages that the stack brings."""
        from compatgate.check.resolver import pins_of
        from compatgate.core.components import COMPONENTS

        facts = self._facts
        names = {
            part: part for part in stack if part in facts.framework_names or part not in COMPONENTS
        }
        return pins_of(
            {part: text for part, text in stack.items() if isinstance(text, str)},
            {**names, **self._project.names},
            self._indexes,
        )

    def _try(self, stack: Json, pins: Pins) -> _Attempt:
        """Resolve and judge one stack; write the lock that passes."""
        from compatgate.check.formats.text import format_stack
        from compatgate.check.resolver import resolve

        away = [url for url in pins.indexes.values() if url in self._away]
        if away:
            _say(f"left out {format_stack(stack)}: {away[0]} does not answer")
            return _Attempt(EXIT_DENIED)
        _say(f"trying {format_stack(stack)}")
        python = str(stack.get("python") or self._python())
        made = resolve(
            self._project.path,
            pins,
            python=python.removesuffix("t"),
            platform=(self._platforms.os, self._platforms.cpu),
            options=self._args.options,
            overrides=self._args.overrides,
        )
        if not made.lock:
            self._away |= {url for url in pins.indexes.values() if f"fetch: {url}" in made.words}
            _say(f"  uv found no lock with {', '.join(pins.constraints())}:")
            _say("\n".join(f"  | {line}" for line in made.words.splitlines()))
            _say("\n".join(f"  {text}" for text in pins.left))
            return _Attempt(EXIT_DENIED)
        verdicts = self._judge(made.lock)
        bad = [one for one in verdicts if not _passes(one)]
        for one in bad or verdicts:
            self._print(one)
        if not bad:
            self._write(made.lock, pins)
            return _Attempt(0)
        _say("\n".join(f"  {text}" for text in pins.left))
        unknown = all(one["verdict"] == "unknown" for one in bad)
        status = EXIT_NO_DECISION if unknown else EXIT_DENIED
        return _Attempt(status, self._recorded_instead(bad, pins))

    def _recorded_instead(self, verdicts: Sequence[Json], pins: Pins) -> Pins | None:
        """Return pins with recorded releases of packages whose content is not known."""
        from msgspec.structs import replace

        found: dict[str, str] = {}
        for finding in (one for verdict in verdicts for one in verdict["findings"]):
            name = finding["component"]
            if finding["rule"] == "CG410" and name not in pins.versions:
                known = self._facts.recorded_versions(name)
                found |= {name: known[-1].public} if known else {}
        return replace(pins, versions={**pins.versions, **found}) if found else None

    def _judge(self, lock: bytes) -> list[Json]:
        """Return the verdicts on a lock, as ``compatgate check --lock`` gives them."""
        import tempfile

        from compatgate.check.stack_sources import read_files

        with tempfile.TemporaryDirectory(prefix="compatgate-lock-") as folder:
            path = os.path.join(folder, "pylock.toml")
            Path(path).write_bytes(lock)
            written = read_files(path, None, self._platforms, {}, self._facts.packages)
        stack = written.stack
        records: Sequence[Record] = ()
        if self._args.read_wheels or self._args.cached_wheels:
            from compatgate.check.wheels import read_wheels

            network = not self._args.cached_wheels
            read = read_wheels(
                stack, written.origins, self._platforms.all, self._facts, network=network
            )
            stack, records = read.stack, read.records
        questions = [[{"target": name, "stack": stack}] for name in self._args.target]
        if self._pools:
            questions = [[{"pool": pool, "stack": stack} for pool in self._pools]]
        return [self._decider.decide(bodies, records) for bodies in questions]

    def _print(self, verdict: Json) -> None:
        from compatgate.check.formats.text import headline, subject

        said, _ = headline(verdict)
        _say(f"  {said}: {subject(verdict)}")
        for finding in verdict["findings"]:
            if finding["outcome"] in ("fail", "unknown", "warn"):
                _say(f"  {finding['outcome']} {finding['rule']}: {finding['message']}")

    def _write(self, lock: bytes, pins: Pins) -> None:
        if self._args.edit:
            print(pins.edit())
            _say("add this to pyproject.toml, run uv lock, then compatgate check --lock uv.lock")
            return
        from compatgate.kit.files import replacing

        out = Path(self._args.out or self._project.path.with_name("pylock.toml"))
        header = f"# Made by uv for compatgate lock --in {self._project.path.name}\n"
        with replacing(out, 0o644) as file:
            file.write(header.encode() + lock)
        print(f"wrote {out}")


def _passes(verdict: Json) -> bool:
    return bool(verdict["allowed"]) and verdict["verdict"] in ("pass", "warn")


def _say(text: str) -> None:
    from compatgate.kit.cli.terminal import strip_controls

    if not text:
        return
    print("\n".join(strip_controls(line) for line in text.split("\n")), file=sys.stderr)


def _read_indexes(texts: Sequence[str]) -> dict[str, str]:
    """Return the index of each label; the empty label is the template of all others.

    Raises:
        BadInput: a value has no URL.
    """
    found = {"": _TORCH_INDEX}
    for text in texts:
        label, equals, url = text.partition("=")
        if not equals or "/" in label:
            label, url = "", text
        if url != "none" and not url.startswith(("https://", "http://", "file://")):
            hint = "cu126=https://..., or none"
            raise BadInput("names no URL", field="--build-index", value=text, hint=hint)
        found[label] = "" if url == "none" else url
    return found
