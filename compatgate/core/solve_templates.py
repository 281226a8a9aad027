"""Say what the solver tries: measured stacks, stacks of entries, then anything wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.candidates import Candidates
from compatgate.core.constraints import Constraint, parse_constraint
from compatgate.core.matrix import Entry, Matrix
from compatgate.core.request import Target
from compatgate.core.stack import Stack

_MAX_MIXES = 64  # combinations of entries, one of each target that requires one
_MAX_MEASURED = 256


class Problem(Struct, frozen=True):
    """The question of the solver.

    Attributes:
        wants: wanted parts; None: any version.
        targets: targets with pools; the stack must pass on all.
        stated: further keys of the stack in request form, ``arch`` or ``needs``.
        base: the stack to stay close to; None: there is none.
        warnings: accept stacks that pass with warnings.
        labels: labels of the builds that another index has; None: any.
    """

    wants: dict[str, Constraint | None]
    targets: tuple[Target, ...]
    stated: dict[str, Any] = {}
    base: Stack | None = None
    most: int = 5
    warnings: bool = True
    labels: frozenset[str] | None = None


class Template(Struct, frozen=True):
    """Parts of the stacks to try, with constraints, in the order of choosing."""

    parts: tuple[str, ...]
    constraints: dict[str, tuple[Constraint, ...]]
    heads: int  # number of parts that lead: each choice of them gives one stack


class Templates:
    """Makes the templates of a problem. The newest versions of the want ``lead`` come first."""

    def __init__(self, problem: Problem, lead: str, candidates: Candidates, matrix: Matrix) -> None:
        self._problem = problem
        self._lead = lead
        self._candidates = candidates
        self._matrix = matrix
        self._base = problem.base.versions if problem.base else {}

    def all(self) -> Iterator[Template]:
        """Yield what to try: measured stacks, stacks of entries, then anything wanted.

        A target that requires evidence passes measured stacks alone; a target that requires an
        entry only stacks that state what an entry constrains.
        """
        targets = self._problem.targets
        if any(t.policy.canary.require for t in targets):
            yield from islice(self._measured(), _MAX_MEASURED)
        needing = [t for t in targets if t.policy.require_entry]
        entries = [
            [
                entry
                for entry in self._matrix.entries.of(target.name)
                if entry.status in ("blessed", "deprecated")
                and any(entry.is_for(pool) for pool in target.pools)
            ]
            for target in needing
        ]
        if needing:
            wants = self._problem.wants.keys()
            mixes = sorted(  # the fewest parts that entries constrain and nobody wants come first
                islice(product(*entries), _MAX_MIXES),
                key=lambda mix: len({name for one in mix for name in one.components} - wants),
            )
            for mix in mixes:
                yield self._template(mix)
        # Anything wanted; a package that leads has a template for each release.
        lead, constraint = self._lead, self._problem.wants[self._lead]
        plain = self._template(())
        known = self._candidates.versions(lead) if lead not in plain.parts[: plain.heads] else []
        for text in known:
            exact = parse_constraint(lead, f"=={text}")
            if constraint is None or constraint.allows(exact.clauses[0].version):
                stated = (*plain.constraints.get(lead, ()), exact)
                yield replace(plain, constraints={**plain.constraints, lead: stated})
        yield plain

    def _measured(self) -> Iterator[Template]:
        """Yield templates that allow a measured stack alone, for each passed run."""
        skus = {
            pool.gpu.sku for target in self._problem.targets for pool in target.pools if pool.gpu
        }
        for run in self._matrix.evidence:
            if run.outcome != "passed" or run.sku not in skus:
                continue
            named = {n: v for n, v in run.components.items() if n != "driver"}
            wants = self._problem.wants.items()
            if any(c and n in named and not c.allows(named[n]) for n, c in wants):
                continue
            exact: dict[str, tuple[Constraint, ...]] = {
                n: (parse_constraint(n, f"=={v.text}"),) for n, v in named.items()
            }
            wanted = [n for n in self._problem.wants if n not in exact]
            if any(self._candidates.has_builds(n) for n in wanted):
                continue  # a run of a framework is about stacks with that framework only
            parts = (*named, *wanted)
            exact |= {n: (c,) for n, c in wants if c and n not in exact}
            yield Template(parts, exact, len(parts))

    def _template(self, entries: Sequence[Entry]) -> Template:
        wants = self._problem.wants.items()
        constraints: dict[str, tuple[Constraint, ...]] = {n: (c,) for n, c in wants if c}
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
        return Template(parts, constraints, len(heads))
