"""Run ``compatgate lock``: let uv lock a project for a target; what the gate passes is written."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from compatgate.check.cli import FACTS_DECIDER, WHEELS, complete_decider
from compatgate.check.deciders import Decider, choose_decider
from compatgate.check.resolver import LOCK_NAME, TORCH_INDEX, Pins, UvProject
from compatgate.check.solve import (
    SOLVE_PLACES,
    read_base,
    read_solve_pools,
    render_solved,
    solve_exit,
)
from compatgate.check.stack_sources import Platforms, read_files, read_platforms
from compatgate.check.wheels import read_wheels
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.facts.records import Record
from compatgate.core.rule import EXIT_DENIED, EXIT_NO_DECISION
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput
from compatgate.formats.text import format_stack, headline, subject
from compatgate.kit.cli.output import say, width_of
from compatgate.kit.cli.usage import command
from compatgate.kit.files import replacing

Json = dict[str, Any]
_MAX_TRIES = 20


@command(
    f"""\
source: --in FILE (required)  requirements.in or pyproject.toml
--out FILE           lock file to write (default: {LOCK_NAME}, next to the project file)
--edit               print the edit of [tool.uv] that makes uv lock choose this stack; write no lock
""",
    SOLVE_PLACES,
    f"""\
base: --from STACK|LOCK  change as little as possible of this stack or lockfile
--python VERSION    Python to resolve for (default: this machine's Python, if the project allows it)
--overrides FILE    file with requirement overrides, for uv --overrides
--build-index [LABEL=]URL ...
    index with builds of a label, such as cu126=https://...; {{label}} stands for it (default:
    {TORCH_INDEX}); none: leave out builds of labels without an index
--tries N = 5       number of stacks to try, 1 to 20
""",
    WHEELS,
    FACTS_DECIDER,
    "[options: -- OPTION ...]  options for uv",
    epilog="""\
The stacks of compatgate solve are tried in their order: uv resolves the project with the stack as
constraints, and the gate judges the lock. The first lock that passes is written.

exit status:
  0  a lock that passes was written      1  none passes, or conflicts with each stack
  2  bad input or usage                  3  no decision (also where the search for stacks stopped at
                                            its limit), or no answer

examples:
  compatgate lock --target prod-a100 --in requirements.in
  compatgate lock --target prod-a100 --in pyproject.toml --python 3.12 --out pylock.prod-a100.toml
  compatgate lock --target prod-a100 --in pyproject.toml --edit
  compatgate lock --pool driver=580.95.05,gpu=L4 --in requirements.in \\
                  --build-index https://mirror.example/whl/{label} -- --default-index https://...
""",
    tries={"type": int},
)
def run(args: argparse.Namespace) -> int:
    """Write the first lock that passes; return the exit status."""
    complete_decider(args)
    if not 1 <= args.tries <= _MAX_TRIES:
        raise BadInput("must be from 1 to 20", field="--tries", value=args.tries)
    with closing(choose_decider(args, recorded=False)) as decider:
        return _Locking(args, decider).run()


class _Locking:
    def __init__(self, args: argparse.Namespace, decider: Decider) -> None:
        self._args = args
        self._decider = decider
        self._facts: Facts = decider.facts()
        self._pools = read_solve_pools(args)
        # the pools of the first target choose the platform
        asked = partial(decider.pools, args.target[0]) if args.target else None
        self._platforms: Platforms = read_platforms(self._pools, asked, {}, self._facts.gpus)
        self._uv = UvProject(args, self._facts, (self._platforms.os, self._platforms.cpu))
        self._project = self._uv.project
        self._unreachable: set[str] = set()

    def run(self) -> int:
        """Try the stacks in their order, and write the first lock that passes."""
        for note in (*self._project.notes, *self._platforms.remarks(self._args.source).values()):
            say(f"note: {note if isinstance(note, str) else '; '.join(note)}")
        solution = self._decider.solve(self._question(), self._pools)
        if not solution["found"]:
            print(render_solved(solution, self._facts, width_of(sys.stdout), colour=False))
            return solve_exit(solution)
        worst = EXIT_DENIED
        tried: list[list[str]] = []
        for one in solution["stacks"]:
            pins: Pins | None = self._uv.pins(one["stack"])
            while pins and pins.constraints() not in tried and len(tried) < 2 * self._args.tries:
                tried.append(pins.constraints())
                status, pins = self._try(one["stack"], pins)
                if status == 0:
                    return 0
                worst = EXIT_NO_DECISION if status == EXIT_NO_DECISION else worst
        say("no lock was written: none of the stacks above gives one that passes")
        return worst

    def _question(self) -> Json:
        wants = dict(self._project.wants)
        if python := self._python():
            wants["python"] = python
        body: Json = {"want": wants, "limit": self._args.tries}
        if self._args.target:
            body["targets"] = self._args.target
        if (labels := self._uv.labels()) is not None:
            body["labels"] = labels
        if self._args.base:
            body["from"] = read_base(self._args.base, self._decider, self._pools)
        return body

    def _python(self) -> str:
        """Return the constraint on Python: as asked for, this machine's, or the project's."""
        if self._args.python:
            parse_version("python", self._args.python)
            return str(self._args.python)
        running, stated = f"3.{sys.version_info.minor}", self._project.python
        version = parse_version("python", running)
        fits = not stated or parse_constraint("python", stated).allows(version)
        return running if fits else stated

    def _try(self, stack: Json, pins: Pins) -> tuple[int, Pins | None]:
        """Resolve and judge one stack; write the lock that passes.

        Return the exit status, and other pins to try with the same stack.
        """
        silent = [url for url in pins.indexes.values() if url in self._unreachable]
        if silent:
            say(f"left out {format_stack(stack)}: {silent[0]} does not answer")
            return EXIT_DENIED, None
        say(f"trying {format_stack(stack)}")
        python = str(stack.get("python") or self._python())
        lock, words = self._uv.resolve(pins, python.removesuffix("t"))
        if not lock:
            self._unreachable |= {url for url in pins.indexes.values() if f"fetch: {url}" in words}
            say(f"  uv found no lock with {', '.join(pins.constraints())}:")
            for text in (*(f"| {line}" for line in words.splitlines()), *pins.left):
                say(f"  {text}")
            return EXIT_DENIED, None
        verdicts = self._judge(lock)
        passing = ("pass", "warn")
        bad = [v for v in verdicts if not v["allowed"] or v["verdict"] not in passing]
        for one in bad or verdicts:
            say(f"  {headline(one)[0]}: {subject(one)}")
            for finding in one["findings"]:
                if finding["outcome"] in ("fail", "unknown", "warn"):
                    say(f"  {finding['outcome']} {finding['rule']}: {finding['message']}")
        if not bad:
            self._write(lock, pins)
            return 0, None
        for text in pins.left:
            say(f"  {text}")
        unknown = all(one["verdict"] == "unknown" for one in bad)
        status = EXIT_NO_DECISION if unknown else EXIT_DENIED
        return status, self._uv.revise(pins, bad)

    def _judge(self, lock: bytes) -> list[Json]:
        with tempfile.TemporaryDirectory(prefix="compatgate-lock-") as folder:
            path = os.path.join(folder, LOCK_NAME)
            Path(path).write_bytes(lock)
            written = read_files(path, None, self._platforms, {}, self._facts.packages)
        stack = written.stack
        records: Sequence[Record] = ()
        if self._args.read_wheels or self._args.cached_wheels:
            network = not self._args.cached_wheels
            read = read_wheels(
                stack, written.origins, self._platforms.all, self._facts, network=network
            )
            stack, records = read.stack, read.records
        questions = [[{"target": name, "stack": stack}] for name in self._args.target]
        if self._pools:
            questions = [[{"pool": pool, "stack": stack} for pool in self._pools]]
        return [self._decider.decide(bodies, records) for bodies in questions]

    def _write(self, lock: bytes, pins: Pins) -> None:
        if self._args.edit:
            print(pins.edit())
            say("add this to pyproject.toml, run uv lock, then compatgate check --lock uv.lock")
            return

        out = Path(self._args.out or self._project.path.with_name(LOCK_NAME))
        header = f"# Made by uv for compatgate lock --in {self._project.path.name}\n"
        with replacing(out, 0o644) as file:
            file.write(header.encode() + lock)
        print(f"wrote {out}")
