"""Find whole stacks that pass on every one of some targets, best first.

Candidates come from the facts, the entries of the matrix and measured runs; cheap conditions order
and thin them out; the evaluation that answers ``check`` has the last word on each. A first pass
skips what published pins and the evaluation of a part of the stack rule out. If it finds nothing,
the last pass skips only stacks that differ from a refused one in no part that the refusing rule
reads, so that nothing is missed within the limit of work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice, product
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from compatgate.core.candidates import Candidates, Choice, Constraints
from compatgate.core.components import sort_components
from compatgate.core.evaluate import assess, evaluate
from compatgate.core.facts import Facts
from compatgate.core.matrix import Constraint, Entry, Matrix, parse_constraint
from compatgate.core.request import Pool, Target
from compatgate.core.rule import EVERYTHING, OUTCOME_RANK, Verdict, parts_of
from compatgate.core.rules import BY_ID
from compatgate.core.solve_result import Miss, Solution, Solved, count_changes, list_changes
from compatgate.core.stack import Stack, parse_stack
from compatgate.core.versions import format_parts
from compatgate.errors import BadInput

MAX_WANTS = 32
MAX_STACKS = 20
MAX_TARGETS = 16
MAX_EVALUATIONS = 1200
"""Evaluations of a stack on a pool, of one question: less than a second of work."""
_MAX_STEPS = 60_000
"""Choices that are looked at, evaluated or not."""
_MAX_MIXES = 64
"""Combinations of entries, one of each target that requires one."""
_MAX_MEASURED = 256
_LATER_PASS = 150
"""Evaluations of a pass after the first."""
_LEAD_EVALUATIONS = 200
"""Evaluations for each further want as the one that leads, where there are several targets."""
_MAX_LEADS = 4
_MISSES = 3
_PER_RELEASE = 2
"""Stacks of the same wanted versions that an answer shows: they differ in their CUDA."""
_encode = json.Encoder().encode
_PASSING = ("pass", "warn")


class Problem(Struct, frozen=True):
    """The question of the solver.

    Attributes:
        wants: wanted parts; None: any version.
        targets: targets with pools; the stack must pass on all.
        stated: further keys of the stack in request form, ``arch`` or ``needs``.
        base: the stack to stay close to; None: there is none.
        most: stacks to return.
        warnings: accept stacks that pass with warnings.
    """

    wants: dict[str, Constraint | None]
    targets: tuple[Target, ...]
    stated: dict[str, Any] = {}
    base: Stack | None = None
    most: int = 5
    warnings: bool = True


class _Template(Struct, frozen=True):
    """Parts of the stacks to try, with constraints, in the order of choosing.

    Attributes:
        parts: names.
        constraints: by name.
        extra: parts that are stated only where something pins or publishes them.
    """

    parts: tuple[str, ...]
    constraints: dict[str, tuple[Constraint, ...]]
    heads: int
    extra: frozenset[str] = frozenset()


def solve(
    problem: Problem,
    *,
    facts: Facts,
    matrix: Matrix,
    now: datetime,
    evaluations: int = MAX_EVALUATIONS,
) -> Solved:
    """Return the stacks that pass on every target, best first, or the nearest misses.

    Fewest changes from ``base`` come first, then stacks than which no other found stack is newer in
    every want, then the newest wanted versions (the first want weighs most), then no warnings, then
    the longest time for which the verdict holds. Over several targets each want leads once, so that
    the answer has the newest of each that runs everywhere.

    Args:
        problem: wants and targets.
        facts: the catalog.
        matrix: entries, waivers and evidence.
        now: for ends of life, waivers and the age of evidence.
        evaluations: limit of work.

    Raises:
        BadInput: nothing is wanted, too much is wanted, or a target has no pools.
    """
    _check(problem)
    search = _Search(problem, facts, matrix, now, evaluations)
    unknown = search.unknown_wants()
    found = [] if unknown else search.run()
    evaluated = search.evaluated
    for lead in list(problem.wants)[1:_MAX_LEADS] if found and problem.targets[1:] else ():
        other = _Search(replace(problem, most=1), facts, matrix, now, _LEAD_EVALUATIONS, lead)
        found += other.run()
        evaluated += other.evaluated
    ranked = _rank(found)[: problem.most]
    finals = [_finish(one, problem, facts, matrix, now) for one in ranked]
    misses = () if finals else search.nearest_misses()
    return Solved(tuple(finals), tuple(misses), tuple(unknown), evaluated, search.complete)


def _check(problem: Problem) -> None:
    if not problem.wants:
        hint = 'like {"torch": ">=2.6", "flash-attn": "*"}'
        raise BadInput("nothing is wanted", field="want", hint=hint)
    for what, count, most in (
        ("want", len(problem.wants), MAX_WANTS),
        ("targets", len(problem.targets), MAX_TARGETS),
        ("limit", problem.most, MAX_STACKS),
    ):
        if count > most:
            raise BadInput(f"too many: {count}", field=what, value=count, hint=f"at most {most}")
    for target in problem.targets:
        if not target.pools:
            raise BadInput(
                "has no pools: there is nowhere to run", field="target", value=target.name
            )


class _Found(Struct, frozen=True):
    """A stack that passes, with its rank."""

    body: dict[str, Any]
    chosen: dict[str, Choice]
    order: int
    versions: tuple[tuple[Any, ...], ...]
    changes: int
    outcome: int
    until: str


def _rank(found: Iterable[_Found]) -> list[_Found]:
    """Order the stacks; show a few of the same wanted versions."""
    ordered = sorted(found, key=lambda one: one.order)
    ordered.sort(key=lambda one: one.until or "9", reverse=True)
    ordered.sort(key=lambda one: one.outcome)
    ordered.sort(key=lambda one: one.versions, reverse=True)
    newest = {one.versions for one in ordered}
    ordered.sort(key=lambda one: any(_is_older(one.versions, other) for other in newest))
    ordered.sort(key=lambda one: one.changes)
    shown: Counter[Any] = Counter()
    ranked: list[_Found] = []
    same_builds = set()
    for one in ordered:
        build = _same_build(one.body)
        if build in same_builds or shown[one.versions] >= _PER_RELEASE:
            continue
        same_builds.add(build)
        shown[one.versions] += 1
        ranked.append(one)
    return ranked


def _is_older(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Tell whether no wanted version is newer than another stack's, and one is older."""
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def _finish(
    found: _Found, problem: Problem, facts: Facts, matrix: Matrix, now: datetime
) -> Solution:
    """Evaluate a stack as ``check`` does, fixes included, so that the verdicts have equal ids."""
    stack = parse_stack(found.body)
    verdicts = tuple(
        evaluate(stack, target, facts=facts, matrix=matrix, now=now) for target in problem.targets
    )
    changes = list_changes(problem.base, found.body) if problem.base else ()
    builds = tuple(
        name for name, one in found.chosen.items() if "[" in one.text and one.release is None
    )
    return Solution(found.body, verdicts, changes, builds)


class _Care(Struct, frozen=True):
    """What a pass leaves out without evaluating whole stacks.

    Attributes:
        pins: versions that published pins of other parts exclude.
        parts: parts that the facts refuse by themselves.
    """

    pins: bool
    parts: bool


_CARES = (_Care(True, True), _Care(True, False), _Care(False, False))
"""Passes of a search, until one finds a stack; the last one leaves nothing out."""


class _Search:
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
        self._candidates = Candidates(facts, self._pools)
        self._bare = Target("", _distinct(self._pools))
        self._partial: dict[tuple[tuple[str, str], ...], bool] = {}
        self._whole: dict[tuple[tuple[str, str], ...], tuple[Verdict, ...]] = {}
        self._refused: dict[frozenset[str], set[tuple[str, ...]]] = {}
        self._cudas: dict[tuple[frozenset[str], Constraints], bool] = {}
        self._misses: list[tuple[int, int, dict[str, Any]]] = []
        self._waived = {rule for waiver in matrix.waivers for rule in waiver.rules}
        self._base = problem.base.versions if problem.base else {}
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
        said = []
        for name, constraint in self._problem.wants.items():
            stated = (constraint,) if constraint else ()
            if self._choices(name, {}, stated):
                continue
            newest = next(iter(self._choices(name, {}, ())), None)
            if newest is None or not newest.version:
                said.append(f"the facts know no release of {name}; state one, like {name}==1.2.3")
            else:
                what = f"no known version of {name} meets {constraint}"
                said.append(f"{what}; the newest that the facts know is {newest.version.public}")
        return said

    def run(self) -> list[_Found]:
        """Return stacks that pass, enough for the answer."""
        for care in _CARES:
            found: dict[str, _Found] = {}
            for template in self._templates():
                for one in self._solutions(template, care):
                    found.setdefault(repr(one.body), one)
                if self.exhausted or len(_rank(found.values())) >= self._problem.most:
                    break
            self._spent = self._spent or self.exhausted
            if found:
                return list(found.values())
            self._left, self._steps = _LATER_PASS, _MAX_STEPS
        return []

    def nearest_misses(self) -> Iterator[Miss]:
        """Yield the refused stacks with the fewest refusing rules, with verdicts and fixes."""
        self._misses.sort(key=lambda one: one[:2])
        seen: dict[tuple[str, ...], dict[str, Any]] = {}
        for _, _, body in self._misses:
            key = tuple(str(body.get(name)) for name in ("cuda", *self._problem.wants))
            if len(seen) < _MISSES:
                seen.setdefault(key, body)
        for body in seen.values():
            stack = parse_stack(body)
            yield Miss(
                body,
                tuple(
                    evaluate(stack, t, facts=self._facts, matrix=self._matrix, now=self._now)
                    for t in self._problem.targets
                ),
            )

    # --- templates -------------------------------------------------------------------------

    def _templates(self) -> Iterator[_Template]:
        """Yield what to try: measured stacks, stacks of entries, then anything wanted.

        A target that requires evidence passes measured stacks alone; a target that requires an
        entry only stacks that state what an entry constrains.
        """
        targets = self._problem.targets
        if any(t.policy.canary.require for t in targets):
            yield from islice(self._measured(), _MAX_MEASURED)
        needing = [t for t in targets if t.policy.require_entry]
        entries = [self._usable_entries(target) for target in needing]
        if needing:
            mixes = sorted(islice(product(*entries), _MAX_MIXES), key=self._count_others)
            for mix in mixes:
                yield self._template(mix)
        yield from self._led_templates()

    def _count_others(self, entries: Sequence[Entry]) -> int:
        """Count the parts that entries constrain and nobody wants."""
        named = {name for entry in entries for name in entry.components}
        return len(named - self._problem.wants.keys())

    def _led_templates(self) -> Iterator[_Template]:
        """Yield templates of anything wanted; a package that leads has one for each release."""
        lead, constraint = self._lead, self._problem.wants[self._lead]
        plain = self._template(())
        known = self._candidates.versions(lead) if lead not in plain.parts[: plain.heads] else []
        for text in known:
            exact = parse_constraint(lead, f"=={text}")
            if constraint is None or constraint.allows(exact.clauses[0].version):
                stated = (*plain.constraints.get(lead, ()), exact)
                yield replace(plain, constraints={**plain.constraints, lead: stated})
        yield plain

    def _usable_entries(self, target: Target) -> list[Entry]:
        return [
            entry
            for entry in self._matrix.entries.of(target.name)
            if entry.status in ("blessed", "deprecated")
            and any(entry.is_for(pool) for pool in target.pools)
        ]

    def _measured(self) -> Iterator[_Template]:
        """Yield templates that allow a measured stack alone, for each passed run."""
        skus = {pool.gpu.sku for pool in self._pools if pool.gpu}
        for run in self._matrix.evidence:
            if run.outcome != "passed" or run.sku not in skus:
                continue
            named = {n: v for n, v in run.components.items() if n != "driver"}
            if any(c and n in named and not c.allows(named[n]) for n, c in self._wanted()):
                continue
            exact: dict[str, tuple[Constraint, ...]] = {
                n: (parse_constraint(n, f"=={v.text}"),) for n, v in named.items()
            }
            wanted = [n for n in self._problem.wants if n not in exact]
            if any(self._candidates.has_builds(n) for n in wanted):
                continue  # a run of a framework is about stacks with that framework only
            parts = (*named, *wanted)
            for n, c in self._wanted():
                if c and n not in exact:
                    exact[n] = (c,)
            yield _Template(parts, exact, len(parts))

    def _wanted(self) -> Iterable[tuple[str, Constraint | None]]:
        return self._problem.wants.items()

    def _template(self, entries: Sequence[Entry]) -> _Template:
        """Return the parts of stacks, with the constraints of wants and of some entries."""
        constraints: dict[str, tuple[Constraint, ...]] = {n: (c,) for n, c in self._wanted() if c}
        for entry in entries:
            for name, constraint in entry.components.items():
                if name != "driver":
                    constraints[name] = (*constraints.get(name, ()), constraint)
        named = dict.fromkeys((self._lead, *self._problem.wants, *self._base, *constraints))
        named.update(dict.fromkeys(self._candidates.implied(named)))
        frameworks = [name for name in named if self._candidates.has_builds(name)]
        special = ("cuda", "python", "cudnn", "nccl")
        packages = [n for n in named if n not in frameworks and n not in special]
        heads = [*frameworks, "cuda"] if frameworks else [*packages, "cuda"]
        rest = packages if frameworks else []
        extra = [n for n in special[1:] if n not in named]
        parts = (*heads, *rest, *(n for n in special[1:] if n in named), *extra)
        return _Template(parts, constraints, len(heads), frozenset(extra))

    # --- search ----------------------------------------------------------------------------

    def _solutions(self, template: _Template, care: _Care) -> Iterator[_Found]:
        """Yield passing stacks of a template: with few changes first, then the newest."""
        levels: Iterable[int | None] = range(len(self._base) + 1) if self._base else (None,)
        count = 0
        seen: set[Any] = set()
        shown: Counter[Any] = Counter()
        for level in levels:
            last: Any = None
            for chosen in self._walk(template, 0, {}, level, care):
                body = self._body(chosen)
                order = len(seen)
                lead = _lead_versions(template, chosen)
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
                changes = count_changes(self._base, body)
                yield _Found(body, dict(chosen), order, versions, changes, outcome, until)
                shown[versions] += 1
                count += shown[versions] <= _PER_RELEASE

    def _walk(
        self,
        template: _Template,
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
        for choice in self._ordered(name, chosen, constraints):
            self._steps -= 1
            if self.exhausted:
                return
            left = changes
            if changes is not None and name in self._base:
                left = changes - self._differs(choice)
                if left < 0:
                    continue
            if care.pins and self._candidates.clashes(choice, chosen):
                continue
            if care.parts and self._fails_alone(choice):
                continue
            further = {**chosen, name: choice}
            if choice.build and not self._have_cuda(template, further):
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

    def _have_cuda(self, template: _Template, chosen: dict[str, Choice]) -> bool:
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

    def _ordered(
        self, name: str, chosen: dict[str, Choice], constraints: Constraints
    ) -> list[Choice]:
        """Return the choices of a part; the version of the base comes first."""
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
        """Return the stack in request form."""
        body = {name: one.text for name, one in chosen.items() if one.text}
        for one in chosen.values():
            for name, text in one.brings:
                body.setdefault(name, text)
        return {**{name: body[name] for name in sort_components(body)}, **self._problem.stated}

    def _is_hopeless(
        self, template: _Template, depth: int, chosen: dict[str, Choice], care: _Care
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
                text = format_parts(choice.build.cuda)
                alone["cuda"] = Choice("cuda", text)
            self._partial[key] = self._fails(alone)
        return self._partial[key]

    def _fails(self, chosen: Mapping[str, Choice]) -> bool:
        body = self._body(chosen)
        if not body:
            return False
        self._count(self._bare)
        found = assess(
            parse_stack(body),
            self._bare,
            facts=self._facts,
            matrix=_NO_MATRIX,
            now=self._now,
            with_fixes=False,
        )
        if found.verdict == "fail":
            self._miss(body, [found])
        return found.verdict == "fail"

    def _count(self, target: Target) -> None:
        self._left -= len(target.pools)
        self.evaluated += len(target.pools)

    def _verdicts(self, chosen: Mapping[str, Choice]) -> tuple[Verdict, ...]:
        key = tuple((name, one.text) for name, one in chosen.items())
        if key not in self._whole:
            stack = parse_stack(self._body(chosen))
            found: list[Verdict] = []
            for target in self._problem.targets:
                self._count(target)
                found.append(
                    assess(
                        stack,
                        target,
                        facts=self._facts,
                        matrix=self._matrix,
                        now=self._now,
                        with_fixes=False,
                    )
                )
            self._whole[key] = tuple(found)
        return self._whole[key]

    def _passes(self, chosen: Mapping[str, Choice]) -> bool:
        verdicts = self._verdicts(chosen)
        accepted = _PASSING if self._problem.warnings else _PASSING[:1]
        if all(v.allowed and v.verdict in accepted for v in verdicts):
            return True
        self._miss(self._body(chosen), verdicts, whole=True)
        for verdict in verdicts:
            self._learn(verdict, chosen)
        return False

    def _learn(self, verdict: Verdict, chosen: Mapping[str, Choice]) -> None:
        """Remember the parts that a refusing rule reads: the same values are refused again.

        A waiver may look at other parts than its rule.
        """
        for finding in verdict.findings:
            rule = BY_ID[finding.rule]
            refusing = finding.outcome in ("fail", "unknown")
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
        refusing = {
            f.rule for v in verdicts for f in v.findings if f.outcome in ("fail", "unknown")
        }
        if len(self._misses) < _MAX_STEPS:
            weight = len(refusing) + (0 if whole else 100)
            self._misses.append((weight, len(self._misses), body))


def _distinct(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    """Return pools without those that differ from another in their name and size alone."""
    found: dict[bytes, Pool] = {}
    for pool in pools:
        found.setdefault(_encode(replace(pool, name="", count=1)), pool)
    return tuple(found.values())


def _same_build(body: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what tells builds apart: the versions without labels; CUDA is one of them."""
    return tuple(sorted((name, str(text).partition("+")[0]) for name, text in body.items()))


def _lead_versions(template: _Template, chosen: Mapping[str, Choice]) -> tuple[str, ...]:
    """Return the versions of the leading parts, without CUDA and builds."""
    heads = template.parts[: template.heads]
    return tuple(v.public for n in heads if n != "cuda" and (v := chosen[n].version))


_NO_MATRIX = Matrix()
