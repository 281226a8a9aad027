"""Give rules one stack on one pool, and derive each value from it once, at first use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from compatgate.core.components import OF_BUILDS
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import KnownIssue, KnownIssues, Made
from compatgate.core.facts.nvidia import Branch, CudnnRelease, Pair, Source, Toolkit
from compatgate.core.gpu_code import Arch, RunMode, find_run_mode
from compatgate.core.matrix import Entry, Evidence, Matrix
from compatgate.core.needs import Needs
from compatgate.core.parts import (
    BUILD,
    CODE,
    CUDA,
    DRIVER,
    EVERYTHING,
    EVIDENCE,
    FORWARD,
    JETSON,
    NEEDS,
    NODE,
    NOTHING,
    PACKAGES,
    RECORDS,
    VERSIONS,
    Parts,
)
from compatgate.core.performance import lazy_property
from compatgate.core.pooled_runs import Coverage, RunPool, find_coverage, pool_runs
from compatgate.core.request import Policy, Pool, Target
from compatgate.core.stack import Stack, find_labelled_cuda
from compatgate.core.stack_facts import (
    ForwardCompatUse,
    FrameworkMatch,
    branch_of,
    check_forward_compat,
    choose_like,
    driver_of,
    find_floor,
    find_framework,
    find_toolkit,
    reported_cuda,
)
from compatgate.core.versions import Version, format_parts

if TYPE_CHECKING:
    from compatgate.core.facts.jetson import Dispute
    from compatgate.core.jetson import JetsonHost
    from compatgate.core.package_finder import PackageSet
    from compatgate.core.packages import GpuPackage

DERIVED_VALUES: dict[str, Parts] = {
    "jetson": DRIVER,
    "branch": DRIVER,
    "driver_cuda": DRIVER,
    "driver_cuda_is_exact": DRIVER,
    "cuda": CUDA,
    "toolkit": CUDA,
    "floor": CUDA | DRIVER,
    "forward": FORWARD,
    "usable_cuda": FORWARD,
    "frameworks": CUDA,
    "carriers": CODE,
    "code": CODE | RECORDS,
    "runs": CODE,
    "ptx_cuda": CODE,
    "run_time_code": RECORDS,
    "of_build": BUILD,
    "package_set": RECORDS,
    "cudnn_release": frozenset(("cudnn",)),
    "issues": PACKAGES | {"arch"},
    "entries": VERSIONS,
    "needs": VERSIONS | NEEDS,
    "to_be_named": PACKAGES,
    "deciding": VERSIONS,
    "nearest": VERSIONS,
    "evidence": EVIDENCE,
}
"""Values that `RuleContext` derives, and the parts of the question that each reads."""


_NO_PINS: Mapping[str, Version] = {}


@lru_cache(maxsize=256)
def _unchanged_names(changed: Parts) -> tuple[str, ...]:
    return tuple(name for name, reads in DERIVED_VALUES.items() if reads.isdisjoint(changed))


class SuiteEvidence(NamedTuple):
    """The evidence of one suite for a stack."""

    coverage: Coverage  # runs that cover the stack
    pool: RunPool | None  # their pooled answer; None: there are none
    # runs that the policy does not accept, where it accepts none
    uncounted: tuple[Evidence, ...] = ()


class Carrier(NamedTuple):
    """A part of a workload with GPU code that runs by itself."""

    code: tuple[Arch, ...]  # all code that it has
    ptx_cuda: Pair | None  # the toolkit that made its PTX; None where that is not known


class CompiledHere(NamedTuple):
    """Code that a part of the stack compiles when it runs."""

    title: str  # name and version of the part
    makes: Made  # what it gives to the driver
    source: Source


class RuleContext:
    """The input of a rule: a stack on a pool, with facts and matrix.

    Args:
        today: ISO date, UTC.
        now: seconds since the epoch.
        brief: only outcomes count; messages need no search for alternatives.
        assumed_pins: parts of the stack that nothing states, and a wheel pins.
    """

    def __init__(
        self,
        stack: Stack,
        pool: Pool,
        target: Target,
        facts: Facts,
        matrix: Matrix,
        *,
        today: str,
        now: float,
        brief: bool = False,
        assumed_pins: Mapping[str, Version] = _NO_PINS,
    ) -> None:
        self.stack = stack
        self.assumed_pins = assumed_pins
        self.pool = pool
        self.driver = pool.driver
        self.os = pool.driver_os  # the system whose driver numbers the pool has
        self.capability = pool.gpu.capability if pool.gpu else None
        self.target = target
        self.facts = facts
        if pool.driver is None and self._states_release and self.jetson and self.jetson.release:
            from compatgate.core.jetson import driver_of_release

            self.driver = driver_of_release(self.jetson.release)
        self.matrix = matrix
        self.today = today
        self.now = now
        self.brief = brief
        self.until: list[str] = []
        """ISO times from which the answer may differ; rules add the times that they read."""

    @lazy_property
    def optional_parts(self) -> Parts:
        """Return the parts of `OPTIONAL` that the question has."""
        pool, found = self.pool, NOTHING
        guest = pool.gpu is not None and pool.gpu.vgpu is not None
        if guest or pool.node or pool.platform or pool.sharing:
            found |= NODE
        if self.jetson is not None:
            found |= JETSON
        if not OF_BUILDS.isdisjoint(self.stack.components):
            found |= {"compilers"}
        return found

    def holds_until(self, when: str) -> None:
        """Record that the answer may differ from an ISO date or time on."""
        moment = when if "T" in when else f"{when}T00:00:00Z"
        if moment > self.today:
            self.until.append(moment)

    def holds_through(self, day: str) -> None:
        """Record that the answer may differ after an ISO date."""
        self.holds_until((date.fromisoformat(day) + timedelta(days=1)).isoformat())

    @property
    def policy(self) -> Policy:
        """Return the target's policy."""
        return self.target.policy

    def on(
        self,
        stack: Stack,
        pool: Pool,
        changed: Parts = EVERYTHING,
        *,
        brief: bool = True,
        assumed_pins: Mapping[str, Version] = _NO_PINS,
    ) -> RuleContext:
        """Return the same question about another stack or pool, which states what is given here."""
        other = RuleContext(
            stack,
            pool,
            self.target,
            self.facts,
            self.matrix,
            today=self.today,
            now=self.now,
            brief=brief,
            assumed_pins=assumed_pins,
        )
        ours = self.__dict__
        other.__dict__.update(
            {name: ours[name] for name in _unchanged_names(changed) if name in ours}
        )
        return other

    # --- the pool --------------------------------------------------------------------------

    @property
    def gpu_name(self) -> str:
        """Return the GPU with its capability, for messages."""
        gpu = self.pool.gpu
        if gpu is None:
            return "the GPU"
        return f"{gpu.sku} ({format_parts(gpu.capability)})" if gpu.product else gpu.name

    @lazy_property
    def jetson(self) -> JetsonHost | None:
        """Return the L4T release of a pool of Jetsons; None for any other pool.

        A capability alone is a Jetson's where the pool states a release or a driver of one.
        """
        gpu = self.pool.gpu
        if gpu is None:
            return None
        tegra = self.facts.arch.tegra
        if not (gpu.segment == "jetson" if gpu.product else gpu.capability in tegra):
            return None
        from compatgate.core.jetson import describe_jetson

        host = describe_jetson(self.pool, self.facts.jetson)
        return host if gpu.product or host.releases or self._states_release else None

    @property
    def _states_release(self) -> bool:
        return "l4t" in self.pool.node or "jetpack" in self.pool.node

    @lazy_property
    def branch(self) -> Branch | None:
        """Return the driver's branch, in the numbers of Linux; None when it is not known."""
        if self.driver is None or self.jetson:
            return None
        return branch_of(self.driver, self.os, self.facts)

    @lazy_property
    def driver_cuda(self) -> Pair | None:
        """Return the CUDA version that the driver reports, or the highest known to work on it."""
        if self.jetson:
            return self.jetson.cuda
        return reported_cuda(self.driver, self.os, self.facts) if self.driver else None

    @lazy_property
    def driver_cuda_is_exact(self) -> bool:
        """Return whether `driver_cuda` is published, and not only a lower bound."""
        if self.jetson:
            return self.jetson.cuda is not None
        return self.branch is not None and self.branch.cuda is not None

    @property
    def forward_may_help(self) -> bool:
        """Return whether forward compatibility may apply, which is not known."""
        return self.forward is not None and self.forward.usable is None

    # --- CUDA ------------------------------------------------------------------------------

    @lazy_property
    def cuda(self) -> Version | None:
        """Return the stack's CUDA: the newest of the stated one and of its frameworks' builds.

        A wheel brings its own runtime: ``torch=2.9.1+cu130`` on a CUDA 12.1 base needs the driver
        that CUDA 13.0 needs.
        """
        stated = self.stack.get("cuda")
        newest = find_labelled_cuda(self.stack, self.facts.frameworks)
        if stated is None or newest is None:
            return stated or newest
        return newest if newest.major_minor > stated.major_minor else stated

    @property
    def infers_cuda(self) -> bool:
        """Tell whether the CUDA is assumed, and rests on releases near one without facts.

        The oldest CUDA of the major that a package's name states (``cudf-cu12``) rests on the name,
        and that of a label (``auto-gptq=0.7.1+cu121``) is stated.
        """
        if not self.stack.assumed:
            return False
        if any(
            found.like or (found.release and found.release.inferred) for found in self.frameworks
        ):
            return True
        if not self.facts.framework_names.isdisjoint(self.stack.versions):
            return False  # the CUDA is that of frameworks
        if self.names_cuda_major and self.cuda and not self.cuda.minor:
            return False
        from compatgate.core.package_cuda import cuda_of_label

        return any(package.near and not cuda_of_label(package) for package in self.packages)

    @lazy_property
    def names_cuda_major(self) -> bool:
        """Tell whether the names of all packages that are only like others state the CUDA's major.

        The lowest driver of a major rests on that name alone, where no framework tells the CUDA.
        """
        from compatgate.core.package_cuda import find_named_cuda

        near = [package for package in self.packages if package.near]
        if not near or self.cuda is None or self.frameworks:
            return False
        named = (find_named_cuda(one.name) or (0,) for one in near)
        return all(self.cuda.major == cuda[0] for cuda in named)

    @lazy_property
    def toolkit(self) -> Toolkit | None:
        """Return the row of the stack's toolkit; None for a release that the facts do not know."""
        return find_toolkit(self.cuda, self.facts) if self.cuda else None

    @lazy_property
    def floor(self) -> tuple[Version, Source] | None:
        """Return the lowest driver that runs the stack's CUDA without forward compatibility."""
        if self.cuda is None or self.jetson:
            return None
        return find_floor(self.cuda, self.toolkit, self.pool, self.facts)

    @lazy_property
    def forward(self) -> ForwardCompatUse | None:
        """Return the use of the forward-compatibility package; None when the stack has none."""
        if self.stack.cuda_compat is None:
            return None
        if self.jetson:
            from compatgate.core.jetson import check_jetson_compat

            return check_jetson_compat(self.stack, self.jetson)
        return check_forward_compat(self.stack, self.pool, self.facts.forward_compat)

    @lazy_property
    def usable_cuda(self) -> Pair | None:
        """Return the CUDA of the user-mode driver, with a usable forward-compatibility package."""
        package = self.forward.brings if self.forward else None
        return max(package.cuda, self.driver_cuda or (0, 0)) if package else self.driver_cuda

    @property
    def compiles_up_to(self) -> Pair | None:
        """Return the newest CUDA whose PTX the driver compiles; None where it is not known."""
        return self.usable_cuda if self.driver else None

    @property
    def usable_driver(self) -> Version | None:
        """Return the user-mode driver: that of a usable forward-compatibility package, if any."""
        package = self.forward.brings if self.forward and not self.jetson else None
        return driver_of(package) if package else self.driver

    @property
    def build_cuda(self) -> Version | None:
        """Return the toolkit that a build compiles with: the stated one, else the frameworks'."""
        return self.stack.get("cuda")

    @lazy_property
    def of_build(self) -> dict[str, Version]:
        """Return compilers, C library and C++ standard that the stack states."""
        have = self.stack.components
        return {name: have[name] for name in have if name in OF_BUILDS}

    @lazy_property
    def needs(self) -> Needs | None:
        """Return what the workload needs: what the stack states, and its deciding entry."""
        stated = self.stack.needs
        of_entry = self.deciding.needs if self.deciding else None
        return of_entry.join(stated) if of_entry else stated

    # --- GPU code --------------------------------------------------------------------------

    @lazy_property
    def frameworks(self) -> tuple[FrameworkMatch, ...]:
        """Return the stack's frameworks (and other parts with published builds) in the facts."""
        return tuple(
            find_framework(name, version, self.cuda, table)
            for name, version in self.stack.versions.items()
            if (table := self.facts.framework(name))
        )

    @property
    def built(self) -> tuple[FrameworkMatch, ...]:
        """Return the frameworks whose published build is known."""
        return tuple(found for found in self.frameworks if found.build)

    @lazy_property
    def carriers(self) -> list[Carrier]:
        """Return the carriers of GPU code: the stated code, else the frameworks' known builds.

        A published build brings the PTX that its own toolkit made, whatever runtime the stack has:
        a TensorFlow of CUDA 12.5 needs no newer driver for libraries of CUDA 12.9. Stated code is
        assumed to be made by the stack's CUDA. Records judge parts whose files were measured,
        library by library.
        """
        stack, pool, cuda = self.stack, self.pool, self.cuda
        own = cuda.major_minor if cuda else None
        if stack.arch is not None:
            return [Carrier(stack.arch, own)]
        builds = [
            found.build
            for found in self.frameworks
            if found.build and found.build.sass and found.name not in stack.measured
        ]
        carriers = []
        for build in builds:
            made_by = (build.ptx_cuda or build.cuda or own) if cuda else None
            carriers.append(Carrier(build.code_on(pool.os, pool.cpu), made_by))
        return carriers

    @lazy_property
    def code(self) -> tuple[Arch, ...] | None:
        """Return stated and measured GPU code, else that of published builds; None if unknown."""
        codes = [one.code for one in self.carriers]
        if self.stack.measured:
            codes += [package.carried for package in self.packages if package.installed]
        found = tuple(dict.fromkeys(code for one in codes for code in one))
        return found if found or self.carriers else None

    @lazy_property
    def runs(self) -> RunMode | None:
        """Return how the stated code (or the builds' code) runs on this GPU; None: it does not.

        Each framework runs by itself: a framework that only has PTX for the GPU makes it ``ptx``.
        """
        ways = [self._runs_here(one) for one in self.carriers]
        if not ways or None in ways:
            return None
        return "ptx" if "ptx" in ways else "sass"

    @lazy_property
    def ptx_cuda(self) -> Pair | None:
        """Return the newest toolkit whose PTX must be compiled; None where none must be."""
        if self.runs != "ptx":
            return None
        compiled = [one.ptx_cuda for one in self.carriers if self._runs_here(one) == "ptx"]
        return max((cuda for cuda in compiled if cuda), default=None)

    @lazy_property
    def run_time_code(self) -> tuple[CompiledHere, ...]:
        """Return what parts of the stack compile with its toolkit when they run, PTX first."""
        if self.cuda is None:
            return ()
        found = [
            CompiledHere(match.title, row.makes, row.source)
            for match in self.frameworks
            if (row := match.table.run_time_code(match.version))
        ]
        for package in self.packages:
            for one in package.statements:
                if one.makes:
                    avoided = any(name in self.stack.versions for name in one.unless)
                    makes = "cubin" if avoided else one.makes
                    found.append(CompiledHere(package.title, makes, one.source))
        return tuple(sorted(found, key=lambda one: one.makes != "ptx"))

    def find_dispute(self, codes: Iterable[Arch]) -> Dispute | None:
        """Return why it is not known whether code that is not made for this Tegra part runs.

        None for any other GPU, and for code of which it is known.
        """
        device = self.capability
        if device is None or device not in self.facts.arch.tegra:
            return None
        made_for = {code.capability for code in codes if code.kind == "sass"}
        for dispute in self.facts.jetson.disputes:
            if dispute.device == device and not made_for.isdisjoint(dispute.code):
                reach = self.usable_cuda
                if dispute.libcuda is None or (reach and reach >= dispute.libcuda):
                    return dispute
        return None

    def _runs_here(self, carrier: Carrier) -> RunMode | None:
        device = self.capability
        return find_run_mode(carrier.code, device, self.facts.arch) if device else None

    # --- packages --------------------------------------------------------------------------

    @lazy_property
    def package_set(self) -> PackageSet | None:
        """Return the stack's packages, and components judged by records; None if it has none."""
        stack, facts = self.stack, self.facts
        if not (stack.packages or stack.measured) and not any(
            facts.has_records(name, version) for name, version in stack.components.items()
        ):
            return None
        from compatgate.core.package_finder import package_finder

        finder = package_finder(facts, self.pool.os, self.pool.cpu, stack.get("python"))
        return finder.all_of(stack)

    @property
    def packages(self) -> tuple[GpuPackage, ...]:
        """Return the packages of `package_set`, each with its record, if known."""
        return self.package_set.packages if self.package_set else ()

    def has_record(self, name: str) -> bool:
        """Tell whether the record of its wheel judges a part of the stack."""
        return any(package.name == name and package.record for package in self.packages)

    # --- libraries and matrix --------------------------------------------------------------

    @lazy_property
    def cudnn_release(self) -> CudnnRelease | None:
        """Return the stack's cuDNN release; the fourth part of its version is a build number.

        One without a row is like the nearest of its minor (``6.0``); what that says is derived.
        """
        have = self.stack.get("cudnn")
        if have is None or have.is_major:
            return None
        known = self.facts.cudnn_releases
        return known.get(have.at(3)) or _find_cudnn_of_minor(have, known)

    @lazy_property
    def issues(self) -> list[KnownIssue]:
        """Return known issues of the stack on this GPU and processor, for any driver."""
        return find_issues(self.stack, self.pool, self.facts.known_issues)

    @lazy_property
    def entries(self) -> list[Entry]:
        """Return matching matrix entries, best first."""
        return self.matrix.entries.matching(self.target.name, self.stack, self.pool)

    @lazy_property
    def deciding(self) -> Entry | None:
        """Return the most specific matching entry; a candidate does not count.

        Under ``entries: strict`` an entry that names every GPU package, or that was revoked, comes
        before others.
        """
        speaking = [entry for entry in self.entries if entry.status != "candidate"]
        first = speaking[0] if speaking else None
        whole = (e for e in speaking if e.status == "revoked" or not self.unnamed(e))
        return next(whole, first)

    @lazy_property
    def to_be_named(self) -> tuple[str, ...]:
        """Return the GPU packages, frameworks included, that an entry must name to bless it."""
        if self.policy.entries != "strict":
            return ()
        packages = self.facts.packages
        return tuple(
            name
            for name in self.stack.versions
            if name in self.facts.frameworks
            or (
                self.facts.is_package(name)
                and packages.carries(name) not in ("nothing", "bindings")
            )
        )

    @lazy_property
    def evidence(self) -> dict[str, SuiteEvidence]:
        """Return the evidence of each suite that the policy asks for; empty: it asks for none."""
        policy = self.policy.canary
        if not policy.require or self.pool.gpu is None or self.driver is None:
            return {}
        return {suite: self._evidence_of(suite) for suite in policy.suites}

    def _evidence_of(self, suite: str) -> SuiteEvidence:
        policy = self.policy.canary
        names = policy.evidence_suites(suite)
        known = [run for name in names for run in self.matrix.runs(name, self.pool)]
        counting = [run for run in known if run.counts_for(policy)]
        found = find_coverage(counting, self.stack, policy.bind)
        pooled = pool_runs(
            found.runs,
            driver=self.driver,
            definition=self.matrix.suites.get(suite),
            max_age_s=policy.max_age_s,
            now=self.now,
        )
        left = [run for run in known if run not in counting]
        uncounted = () if pooled else find_coverage(left, self.stack, policy.bind).runs
        return SuiteEvidence(found, pooled, tuple(uncounted))

    def unnamed(self, entry: Entry) -> list[str]:
        """Return the GPU packages that an entry must name and does not."""
        return [name for name in self.to_be_named if name not in entry.components]

    @lazy_property
    def nearest(self) -> Entry | None:
        """Return the blessed entry of the target that differs least."""
        index, named = self.matrix.entries, self.to_be_named
        return index.nearest(self.target.name, self.stack, self.pool, named)


def _find_cudnn_of_minor(
    have: Version, known: Mapping[tuple[int, ...], CudnnRelease]
) -> CudnnRelease | None:
    minor = sorted(number for number in known if number[:2] == have.major_minor)
    if not minor or have.at(3) > max(known):
        return None
    like = known[choose_like(have, minor, [number for number in minor if number <= have.at(3)])]
    source = replace(like.source, confidence="derived")
    builds = {
        major: replace(build, source=source, capability_source=source)
        for major, build in like.builds.items()
    }
    return replace(like, source=source, builds=builds)


def find_issues(stack: Stack, pool: Pool, table: KnownIssues) -> list[KnownIssue]:
    """Return the issues whose components the stack has, on GPUs and processors that they name.

    A pool whose GPU is not known is on no list of GPUs.
    """
    have = stack.versions.keys()
    return [
        one
        for components, issues in table.by_components.items()
        if have >= components
        for one in issues
        if _concerns(one, stack, pool)
    ]


def _concerns(issue: KnownIssue, stack: Stack, pool: Pool) -> bool:
    if issue.capabilities and (pool.gpu is None or pool.gpu.capability not in issue.capabilities):
        return False
    if issue.cpus and pool.cpu not in issue.cpus:
        return False
    if issue.os and not {pool.os, "windows" if pool.os == "windows" else "linux"} & set(issue.os):
        return False
    have = stack.versions
    if issue.wheels:
        versions = [have[name] for name in issue.components if name in have]
        own_build = any(v.local and v.cuda is None for v in versions)  # like +nv25.02
        if stack.arch is not None or own_build:
            return False
    return all(
        parse_constraint(name, issue.components[name]).allows(have[name]) for name in issue.of_stack
    )
