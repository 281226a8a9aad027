"""List the steps from a denial to an allowed stack: who does what, with which command.

Everything comes from the verdict's findings, from evaluated changes, and from the owner that the
target states. Nothing is decided here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.components import FRAMEWORKS, join_words
from compatgate.core.remedies import Remedy
from compatgate.core.request import POOL_CHANGES
from compatgate.core.rule import REFUSING
from compatgate.core.rules import BY_ID
from compatgate.core.stack import format_stack
from compatgate.documents.text import to_yaml
from compatgate.kit.ui.filters import count_things
from compatgate.service.gate.questions.remedies import Resolution
from compatgate.service.matrix.documents.waivers import match_versions
from compatgate.web.pages.question_links import write_stack

Json = dict[str, Any]
_YOU = "you"
_MAX_FINDINGS = 5
_SUITE = re.compile(r"suite (\S+)")
_UNSAFE = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 50
_ENTRY_FILE = "entry.yaml"
_LIBRARIES = ("cuda", "cudnn", "nccl", "cublas", "python")


class FormLink(Struct, frozen=True):
    """A page of this gate that does a step: below ``/ui``, with values that it begins with."""

    label: str
    path: tuple[str, ...]
    fields: dict[str, str]
    scope: str


class Step(Struct, frozen=True):
    """A step towards an allowed stack: what to do, why, and who can do it.

    Where there are several commands, ``several`` says how they relate; ``file`` is the name and
    content of one that a command reads, ``form`` the page that does the same. ``changes`` are those
    of the question that it asks again; None: it asks none.
    """

    title: str
    why: str
    owner: str
    commands: tuple[str, ...] = ()
    several: str = ""
    file: tuple[str, str] | None = None
    form: FormLink | None = None
    changes: Mapping[str, str | None] | None = None


class StepPlace(Struct, frozen=True):
    """The URL of the gate, for commands, and the owner of the target; empty: it states none."""

    base: str
    owner: str = ""


def list_steps(
    verdict: Mapping[str, Any], place: StepPlace, found: Resolution | None = None
) -> list[Step]:
    """Return the steps, nearest first: changes that end in *allowed*, a blessing, a waiver.

    There are none for a verdict that passes.
    """
    findings = [f for f in verdict["findings"] if f["outcome"] in REFUSING]
    if verdict["verdict"] not in REFUSING or not findings:
        return []
    found, guide = found or Resolution(), _Guide(verdict, place)
    if found.is_allowed:
        why = "The same question is allowed on the matrix and the facts of now."
        return [Step("It is allowed now", why, _YOU, (guide.question(),), changes={})]
    steps = [guide.change(one) for one in found.remedies]
    changes = bool(found.remedies)
    resolved = (guide.resolve(one, changes=changes) for one in findings[:_MAX_FINDINGS])
    steps += filter(None, resolved)
    if guide.drafted:
        steps.append(guide.bless(guide.drafted))
    if found.waiver:
        steps.append(guide.waive(found))
    return [step for at, step in enumerate(steps) if step not in steps[:at]]


class _Guide:
    def __init__(self, verdict: Mapping[str, Any], place: StepPlace) -> None:
        self._verdict = verdict
        self._place = place
        self.drafted = ""
        """Name of a drafted entry that is blessed only once a canary has passed."""
        self._target: str = verdict["target"] or ""
        self._image: str = verdict["image"] or ""
        self._stack = write_stack(verdict["stack"])

    def change(self, remedy: Remedy) -> Step:
        of_pools = not remedy.set.keys().isdisjoint(POOL_CHANGES)
        rest = f", with {count_things(remedy.warnings, 'warning')}" if remedy.warnings else ""
        commands = [self.question(remedy.set)]
        several = ""
        if of_pools and self._target:
            changes = format_stack(remedy.set)
            commands.append(self._with_gate("plan", "--target", self._target, "--set", changes))
            several = "The first asks again with it, the second plans it."
        return Step(
            f"{remedy.message[:1].upper()}{remedy.message[1:]}",
            f"Evaluated: it ends in allowed{rest}.",
            self._owner() if of_pools else _YOU,
            tuple(filter(None, commands)),
            several,
            changes=remedy.set,
        )

    def resolve(self, finding: Json, *, changes: bool) -> Step | None:
        """Return the step that resolves a finding without changing the stack, if there is one.

        ``changes``: some change of the stack or the pools ends in *allowed*.
        """
        rule = BY_ID.get(finding["rule"])
        cause = rule.cause if rule else "facts"
        if cause == "evidence" and self._target:
            return self._run_canary(finding)
        if finding["rule"] == "CG801" and self._target:
            refusing = [f["rule"] for f in self._verdict["findings"] if f["outcome"] in REFUSING]
            rules = [BY_ID[name] for name in refusing if name in BY_ID]
            if not any(one.about_facts for one in rules):  # which no entry mends
                return self._propose_entry(finding, any(one.cause == "evidence" for one in rules))
        return None if changes else self._explain(finding)

    def waive(self, found: Resolution) -> Step:
        begun = found.waiver
        rules = begun["rules"].split(", ")
        why = (
            f"A waiver accepts {join_words(rules)} for this image or these versions on"
            f" {self._target} until a date."
        )
        if physical := [rule for rule in rules if BY_ID[rule].about_facts]:
            stays = "The driver" if physical == ["CG101"] else f"What {', '.join(physical)} reports"
            why += f" {stays} stays{' too old' if physical == ['CG101'] else ''}; the program may"
            why += " still fail."
        title = "If it must run before that: a narrow waiver"
        if found.uncovered:
            title = "A waiver alone does not allow it"
            why = f"It covers {', '.join(rules)}, but not {'; nor '.join(found.uncovered)}."
        form = FormLink("Draft the waiver", ("new-waiver",), begun, "bless")
        verdict_id = self._verdict["id"]
        command = self._with_gate("matrix", "waive", verdict_id, "--reason", "why it must run")
        return Step(title, why, self._owner(), (command,), form=form)

    def question(self, changes: Mapping[str, Any] | None = None) -> str:
        """Return the question as a command, with changes; empty: options cannot state it."""
        if not (self._stack or self._image):
            return ""
        words = [*self._where()]
        words += ["--stack", self._stack] if self._stack else []
        words += ["--image", self._image] if self._image else []
        if changes:
            words += ["--set", format_stack(dict(changes))]
        return self._with_gate("check", *words)

    def _explain(self, finding: Json) -> Step:
        commands = [shlex.join(["compatgate", "explain", finding["rule"]])]
        if self._stack and finding["outcome"] == "fail":
            commands.append(self._with_gate("solve", *self._where(), "--from", self._stack))
        if finding["outcome"] == "unknown":
            title = f"State what is missing: {finding['need'] or finding['component']}"
        else:
            title = "No small change allows it: look for the nearest stack that passes"
        several = "The reason of the rule, then the search." if commands[1:] else ""
        form = None
        if wants := [name for name in self._verdict["stack"] if name in FRAMEWORKS]:
            fields = {"target": self._target, "stack": self._stack, "want": ",".join(wants)}
            form = FormLink("Find the nearest stack", ("solve",), fields, "plan")
        return Step(title, _resolves(finding), _YOU, tuple(commands), several, form=form)

    def _propose_entry(self, finding: Json, needs_canary: bool) -> Step:
        why = _resolves(finding)
        if finding["have"]:
            entry = finding["have"]
            form = FormLink(f"Open {entry}", ("entries", entry), {}, "bless")
            return replace(self.bless(entry), why=why, form=form)
        components = match_versions(self._verdict["stack"])
        if not components:
            return Step("Have an entry blessed for it", why, self._owner())
        part = next((one for one in components if one not in _LIBRARIES), next(iter(components)))
        name = _UNSAFE.sub("-", f"{part}-{components[part]}".lower())[:_LONGEST_NAME].strip("-")
        status = "candidate" if needs_canary else "blessed"
        self.drafted = name if needs_canary else ""
        document: Json = {
            "apiVersion": "compatgate.dev/v1",
            "kind": "Entry",
            "metadata": {"name": name},
            "spec": {"status": status, "targets": [self._target], "components": components},
        }
        words = (_ENTRY_FILE, "--reason", "what passed, and where")
        command = self._with_gate("matrix", "propose", *words)
        lines = "\n".join(f"{name} {value}" for name, value in components.items())
        fields = {"targets": self._target, "components": lines}
        form = FormLink("Draft the entry", ("new-entry",), fields, "bless")
        title = "Propose an entry for the stack as it is"
        file = (_ENTRY_FILE, to_yaml([document]))
        return Step(title, why, self._owner(), (command,), file=file, form=form)

    def bless(self, entry: str) -> Step:
        words = ("--bless", entry, "--reason", "what passed, and where")
        command = self._with_gate("matrix", "propose", *words)
        title, why = f"Have the entry {entry} blessed", "The canaries have passed by then."
        return Step(title, why, self._owner(), (command,))

    def _run_canary(self, finding: Json) -> Step:
        why = _resolves(finding)
        owner = "a person who runs canaries (scope operate)"
        if finding["rule"] == "CG813" and finding["have"]:
            run = finding["have"]
            discard = ("canary", "discard", run, "--reason", "why it does not count")
            commands = self._with_gate("canary", "show", run), self._with_gate(*discard)
            several = "Correct the image and run again."
            several += " Discard a run only if the image is not at fault."
            form = FormLink(f"Open {run}", ("runs", run), {}, "read")
            return Step(f"See why {run} failed", why, owner, commands, several, form=form)
        named = _SUITE.search(finding["need"] or "") or _SUITE.search(finding["message"])
        suite = named[1] if named else "SUITE"
        what = {"image": self._image} if self._image else {"stack": self._stack}
        words = [word for name, value in what.items() if value for word in (f"--{name}", value)]
        run = ("canary", "run", "--suite", suite, "--target", self._target)
        command = self._with_gate(*run, *words)
        fields = {"suite": suite, "target": self._target, **what}
        form = FormLink("Run the canary", ("runs", "new"), fields, "operate")
        return Step(f"Run suite {suite} on staging", why, owner, (command,), form=form)

    def _owner(self) -> str:
        if not self._target:
            return "the owner of the machines"
        named = f", {self._place.owner}" if self._place.owner else ""
        return f"the owner of {self._target}{named}"

    def _where(self) -> Sequence[str]:
        if self._target:
            return "--target", self._target
        pool = self._verdict["pools"][0] if self._verdict["pools"] else {}
        stated = {key: pool[key] for key in ("driver", "gpu", "os", "cpu") if pool.get(key)}
        return "--pool", format_stack(stated)

    def _with_gate(self, *words: str) -> str:
        return shlex.join(["compatgate", *words, "--server", self._place.base])


def _resolves(finding: Json) -> str:
    return f"Resolves {finding['rule']} {finding['name']}."
