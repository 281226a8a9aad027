"""Search the stacks of a problem: choose part by part, evaluate, and learn from refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from compatgate.core.candidates import Candidates, Choice, Constraints
from compatgate.core.components import sort_components
from compatgate.core.constraints import parse_constraint
from compatgate.core.evaluate import assess, evaluate
from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.parts import EVERYTHING, parts_of
from compatgate.core.performance import near_names
from compatgate.core.request import Pool, Target
from compatgate.core.rule import OUTCOME_RANK, REFUSING, Verdict
from compatgate.core.rules import BY_ID
from compatgate.core.solve_result import Miss, count_changes
from compatgate.core.solve_templates import Problem, Template, Templates
from compatgate.core.stack import Stack, parse_stack
from compatgate.core.versions import format_parts

_MAX_STEPS = 60_000  # choices that are looked at, evaluated or not
_LATER_PASS = 150  # evaluations of a pass after the first
_MISSES = 3
_MAX_TRIED = 20  # refused stacks that are evaluated to show `_MISSES`
_PER_RELEASE = 2
"""Stacks of the same wanted versions that an answer shows: they differ in their CUDA."""
_encode = json.Encoder().encode
_PASSING = ("pass", "warn")


class Found(Struct, frozen=True):
    """A stack that passes, with its rank."""

    body: dict[str, Any]
    chosen: dict[str, Choice]
    order: int
    versions: tuple[tuple[Any, ...], ...]
    changes: int
    outcome: int
    until: str


def rank_found(found: Iterable[Found]) -> list[Found]:
    """Order the stacks; show a few of the same wanted versions."""
    ordered = sorted(found, key=lambda one: one.order)
    ordered.sort(key=lambda one: one.until or "9", reverse=True)
    ordered.sort(key=lambda one: one.outcome)
    ordered.sort(key=lambda one: one.versions, reverse=True)
    newest = {one.versions for one in ordered}
    # First those than which no other is newer in a wanted version, and as new in the rest.
    ordered.sort(
        key=lambda one: any(
            one.versions != other and all(a <= b for a, b in zip(one.versions, other, strict=True))
            for other in newest
        )
    )
    ordered.sort(key=lambda one: one.changes)
    shown: Counter[Any] = Counter()
    ranked: list[Found] = []
    same_builds = set()
    for one in ordered:
        build = _same_build(one.body)
        if build in same_builds or shown[one.versions] >= _PER_RELEASE:
            continue
        same_builds.add(build)
        shown[one.versions] += 1
        ranked.append(one)
    return ranked


class _Care(Struct, frozen=True):
    """The parts that a pass omits without evaluating whole stacks."""

    pins: bool  # versions that published pins of other parts exclude
    parts: bool  # parts that the facts refuse by themselves


_CARES = (_Care(True, True), _Care(True, False), _Care(False, False))
"""Passes of a search, until one finds a stack; the last one leaves nothing out."""


class Search:
    """Searches the stacks of one problem, and counts its work."""

    def __init__(
        self,
        problem: Problem,
        facts: Facts,
        matrix: Matrix,
        now: datetime,
        evaluations: int,
        lead: str = "",
    ) -> None:
        self._problem = problem
        self._lead = lead or next(iter(problem.wants))
        self._facts = facts
        self._matrix = matrix
        self._now = now
        self._left = evaluations
        self._steps = _MAX_STEPS
        self._pools = tuple(pool for target in problem.targets for pool in target.pools)
        self._candidates = Candidates(facts, self._pools, problem.labels)
        self._templates = Templates(problem, self._lead, self._candidates, matrix)
        found: dict[bytes, Pool] = {}
        for pool in self._pools:
            found.setdefault(_encode(replace(pool, name="", count=1)), pool)
        self._bare = Target("", tuple(found.values()))
        self._partial: dict[tuple[tuple[str, str], ...], bool] = {}
        self._whole: dict[tuple[tuple[str, str], ...], tuple[Verdict, ...]] = {}
        self._refused: dict[frozenset[str], set[tuple[str, ...]]] = {}
        self._cudas: dict[tuple[frozenset[str], Constraints], bool] = {}
        self._misses: list[tuple[int, int, dict[str, Any]]] = []
        self._without_cuda: list[dict[str, Any]] = []
        self._waived = {rule for waiver in matrix.waivers for rule in waiver.rules}
        self._base = problem.base.versions if problem.base else {}
        candidates = self._candidates
        frameworks = [name for name in self._base if candidates.has_builds(name)]
        free = [name for name in self._base if name not in problem.wants]
        # Frameworks of the base that bring a part of it, and those that it is built on.
        self._brought = {n: [f for f in frameworks if candidates.brings(f, n)] for n in free}
        self._followed = {n: [f for f in frameworks if candidates.is_built_on(n, f)] for n in free}
        self._spent = False
        self.evaluated = 0

    @property
    def exhausted(self) -> bool:
        """Tell whether a pass has reached its limit of work."""
        return self._left <= 0 or self._steps <= 0

    @property
    def complete(self) -> bool:
        """Tell whether every pass ended by itself."""
        return not self._spent

    def unknown_wants(self) -> list[str]:
        """Return why a wanted part has no version to try, in words."""
        reasons = []
        known = self._facts.framework_names | self._facts.recorded
        for name, constraint in self._problem.wants.items():
            stated = (constraint,) if constraint else ()
            if self._choices(name, {}, stated):
                continue
            newest = next(iter(self._choices(name, {}, ())), None)
            if newest and newest.version:
                why = f"no known version of {name} meets {constraint}; the newest that the facts "
                why += f"know is {newest.version.public}"
            else:
                near = near_names(name, known, cutoff=0.75)
                why = f"the facts know no release of {name}; "
                why += f"did you mean {near[0]}? otherwise " if near else ""
                why += "leave it out if it has no GPU code, or state a release, like "
                why += f"{name}==1.2.3"
            reasons.append(why)
        return reasons

    def run(self) -> list[Found]:
        """Return stacks that pass, enough for the answer."""
        for care in _CARES:
            found: dict[str, Found] = {}
            for template in self._templates.all():
                for one in self._solutions(template, care):
                    found.setdefault(repr(one.body), one)
                if self.exhausted or len(rank_found(found.values())) >= self._problem.most:
                    break
            self._spent = self._spent or self.exhausted
            if found:
                return list(found.values())
            self._left, self._steps = _LATER_PASS, _MAX_STEPS
        return []

    def nearest_misses(self) -> list[Miss]:
        """Return the refused stacks with the fewest refusing rules, with verdicts and fixes.

        Where none was evaluated, because no CUDA fits the builds of any, return some of those.
        """
        self._misses.sort(key=lambda one: one[:2])
        evaluated = self._refused_stacks(body for _, _, body in self._misses)
        return list(evaluated) or list(self._refused_stacks(self._without_cuda))

    def _refused_stacks(self, bodies: Iterable[dict[str, Any]]) -> Iterator[Miss]:
        """Yield a few; a part of a stack that the facts refuse may pass by a waiver."""
        seen: set[tuple[str, ...]] = set()
        shown = 0
        for body in bodies:
            key = tuple(str(body.get(name)) for name in ("cuda", *self._problem.wants))
            if key in seen:
                continue
            seen.add(key)
            stack = parse_stack(body)
            verdicts = tuple(
                evaluate(stack, t, facts=self._facts, matrix=self._matrix, now=self._now)
                for t in self._problem.targets
            )
            if not self._accepts(verdicts):
                yield Miss(body, verdicts)
                shown += 1
            if shown == _MISSES or len(seen) == _MAX_TRIED:
                return

    # --- search ----------------------------------------------------------------------------

    def _solutions(self, template: Template, care: _Care) -> Iterator[Found]:
        """Yield passing stacks of a template: with few changes first, then the newest."""
        levels: Iterable[int | None] = range(len(self._base) + 1) if self._base else (None,)
        heads = [name for name in template.parts[: template.heads] if name != "cuda"]
        count = 0
        seen: set[Any] = set()
        shown: Counter[Any] = Counter()
        for level in levels:
            last: Any = None
            for chosen in self._walk(template, 0, {}, level, care):
                body = self._body(chosen)
                order = len(seen)
                lead = [v.public for n in heads if (v := chosen[n].version)]
                if count >= self._problem.most and lead != last:
                    return
                last = lead
                key = _same_build(body)
                if key in seen:
                    continue
                seen.add(key)
                verdicts = self._verdicts(chosen)
                outcome = max(OUTCOME_RANK[v.verdict] for v in verdicts)
                until = min((v.valid_until for v in verdicts if v.valid_until), default="")
                versions = tuple(
                    v.key if (v := chosen[n].version) else () for n in self._problem.wants
                )
                counted = {n: v for n, v in self._base.items() if not self._is_free(n, chosen)}
                changes = count_changes(counted, body)
                yield Found(body, dict(chosen), order, versions, changes, outcome, until)
                shown[versions] += 1
                count += shown[versions] <= _PER_RELEASE

    def _walk(
        self,
        template: Template,
        depth: int,
        chosen: dict[str, Choice],
        changes: int | None,
        care: _Care,
    ) -> Iterator[dict[str, Choice]]:
        """Yield passing choices; one for each choice of the leading parts."""
        if depth == len(template.parts):
            if changes in (None, 0) and self._passes(chosen):
                yield dict(chosen)
            return
        name = template.parts[depth]
        constraints = template.constraints.get(name, ())
        choices = self._ordered(name, chosen, constraints)
        if not care.parts:  # a near miss has as few parts as possible that are refused anywhere
            choices = sorted(choices, key=self._fails_alone)
        for choice in choices:
            self._steps -= 1
            if self.exhausted:
                return
            left = changes
            if changes is not None and name in self._base and not self._is_free(name, chosen):
                left = changes - self._differs(choice)
                if left < 0:
                    continue
            if care.pins and self._candidates.clashes(choice, chosen):
                continue
            if care.parts and self._fails_alone(choice):
                continue
            further = {**chosen, name: choice}
            if choice.build and not self._have_cuda(template, further):
                if len(self._without_cuda) < _MISSES:
                    self._without_cuda.append(self._body(further))
                continue
            if self._is_hopeless(template, depth, further, care):
                continue
            found = False
            for one in self._walk(template, depth + 1, further, left, care):
                found = True
                yield one
                if depth >= template.heads:
                    break
            if found and depth >= template.heads:
                return

    def _have_cuda(self, template: Template, chosen: dict[str, Choice]) -> bool:
        """Tell whether a CUDA fits the chosen builds; without any there is no stack."""
        if "cuda" not in template.parts:
            return True
        builds = frozenset(one.text + name for name, one in chosen.items() if one.build)
        constraints = template.constraints.get("cuda", ())
        key = (builds, constraints)
        if key not in self._cudas:
            self._cudas[key] = bool(self._candidates.cudas(chosen, constraints))
        return self._cudas[key]

    def _differs(self, choice: Choice) -> int:
        have = self._base[choice.name]
        same = choice.version is not None and choice.version.key == have.key
        return int(not same)

    def _is_free(self, name: str, chosen: Mapping[str, Choice]) -> bool:
        """Tell whether a part of the base follows a framework that has another version now."""
        followed = (*self._brought.get(name, ()), *self._followed.get(name, ()))
        return any(f in chosen and self._differs(chosen[f]) for f in followed)

    def _ordered(
        self, name: str, chosen: dict[str, Choice], constraints: Constraints
    ) -> list[Choice]:
        """Return the choices of a part; the version of the base comes first.

        What another version of a framework brings is left to it, but for the cuDNN and NCCL that
        it pins.
        """
        if not constraints and self._brought.get(name) and self._is_free(name, chosen):
            if name in ("cudnn", "nccl"):
                return self._candidates.library(name, chosen, ())
            return [Choice(name, "")]
        found = self._choices(name, chosen, constraints)
        have = self._base.get(name)
        if have is None:
            return found
        if not any(one.text == have.text for one in found):
            known = self._candidates.has_builds(name) or name in ("cuda", "python")
            if not known and all(one.allows(have) for one in constraints):
                found = [Choice(name, have.text, have), *found]
        cuda = self._base.get("cuda")
        near = cuda.major_minor if cuda else None
        return sorted(
            found,
            key=lambda one: (
                self._differs(one),
                one.text != have.text,
                bool(near and one.build and one.build.cuda != near),
            ),
        )

    def _choices(
        self, name: str, chosen: dict[str, Choice], constraints: Constraints
    ) -> list[Choice]:
        candidates = self._candidates
        if candidates.has_builds(name):
            return [
                one
                for one in candidates.framework(name)
                if one.version and all(c.allows(one.version) for c in constraints)
            ]
        if name == "cuda":
            return candidates.cudas(chosen, constraints)
        if name == "python":
            wanted = constraints or ("python" in self._problem.wants) or ("python" in self._base)
            any_python = (parse_constraint("python", ">=3.0"),)
            return candidates.pythons(chosen, constraints or (any_python if wanted else ()))
        if name in ("cudnn", "nccl"):
            wanted = name in self._problem.wants or name in self._base
            at_least = (parse_constraint(name, ">=1.0.0"),) if wanted else ()
            return candidates.library(name, chosen, constraints or at_least)
        return candidates.package(name, chosen, constraints)

    def _body(self, chosen: Mapping[str, Choice]) -> dict[str, Any]:
        body = {name: one.text for name, one in chosen.items() if one.text}
        for one in chosen.values():
            for name, text in one.brings:
                body.setdefault(name, text)
        return {**{name: body[name] for name in sort_components(body)}, **self._problem.stated}

    def _is_hopeless(
        self, template: Template, depth: int, chosen: dict[str, Choice], care: _Care
    ) -> bool:
        """Tell whether a refused stack, or the evaluation of a part, rules out what is chosen."""
        names = chosen.keys()
        last = template.parts[depth]
        for parts, values in self._refused.items():
            if last not in parts or not parts <= names:
                continue
            if tuple(chosen[n].text for n in sorted(parts)) in values:
                return True
        if not care.parts or depth + 1 == len(template.parts):
            return False
        key = tuple((name, one.text) for name, one in chosen.items())
        if key not in self._partial:
            self._partial[key] = self._fails(chosen)
        return self._partial[key]

    def _fails_alone(self, choice: Choice) -> bool:
        """Tell whether the facts refuse a part by itself: it has no code for a GPU."""
        if choice.name in ("cuda", "python", "cudnn", "nccl"):
            return False
        key = ((choice.name, choice.text),)
        if key not in self._partial:
            alone = {choice.name: choice}
            if choice.build and choice.build.cuda:
                alone["cuda"] = Choice("cuda", format_parts(choice.build.cuda))
            self._partial[key] = self._fails(alone)
        return self._partial[key]

    def _fails(self, chosen: Mapping[str, Choice]) -> bool:
        body = self._body(chosen)
        if not body:
            return False
        found = self._assess(parse_stack(body), self._bare, _NO_MATRIX)
        if found.verdict == "fail":
            self._miss(body, [found])
        return found.verdict == "fail"

    def _assess(self, stack: Stack, target: Target, matrix: Matrix) -> Verdict:
        self._left -= len(target.pools)
        self.evaluated += len(target.pools)
        return assess(
            stack, target, facts=self._facts, matrix=matrix, now=self._now, with_fixes=False
        )

    def _verdicts(self, chosen: Mapping[str, Choice]) -> tuple[Verdict, ...]:
        key = tuple((name, one.text) for name, one in chosen.items())
        if key not in self._whole:
            stack = parse_stack(self._body(chosen))
            found = [self._assess(stack, one, self._matrix) for one in self._problem.targets]
            self._whole[key] = tuple(found)
        return self._whole[key]

    def _passes(self, chosen: Mapping[str, Choice]) -> bool:
        verdicts = self._verdicts(chosen)
        if self._accepts(verdicts):
            return True
        self._miss(self._body(chosen), verdicts, whole=True)
        for verdict in verdicts:
            self._learn(verdict, chosen)
        return False

    def _accepts(self, verdicts: Iterable[Verdict]) -> bool:
        accepted = _PASSING if self._problem.warnings else _PASSING[:1]
        return all(v.allowed and v.verdict in accepted for v in verdicts)

    def _learn(self, verdict: Verdict, chosen: Mapping[str, Choice]) -> None:
        """Remember the parts that a refusing rule reads: the same values are refused again.

        A waiver may look at other parts than its rule.
        """
        for finding in verdict.findings:
            rule = BY_ID[finding.rule]
            refusing = finding.outcome in REFUSING
            if not refusing or rule.reads >= EVERYTHING or finding.rule in self._waived:
                continue
            read = frozenset(
                name
                for name, one in chosen.items()
                if parts_of((name, *dict(one.brings)), self._facts.frameworks) & rule.reads
            )
            if read:
                values = tuple(chosen[name].text for name in sorted(read))
                self._refused.setdefault(read, set()).add(values)

    def _miss(
        self, body: dict[str, Any], verdicts: Iterable[Verdict], *, whole: bool = False
    ) -> None:
        """Keep a refused stack; whole ones come before parts of stacks."""
        refusing = {f.rule for v in verdicts for f in v.findings if f.outcome in REFUSING}
        if len(self._misses) < _MAX_STEPS:
            weight = len(refusing) + (0 if whole else 100)
            self._misses.append((weight, len(self._misses), body))


def _same_build(body: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what tells builds apart: the versions without labels; CUDA is one of them."""
    return tuple(sorted((name, str(text).partition("+")[0]) for name, text in body.items()))


_NO_MATRIX = Matrix()
