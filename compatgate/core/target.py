"""Where a stack is to run: targets, their pools, and the policy that decides what is enough."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from compatgate.core.facts import Gpu
from compatgate.core.versions import Version

Os = Literal["linux", "windows", "wsl"]
DriverOs = Literal["linux", "windows"]
"""Whose driver numbers: WSL has those of Windows."""
Cpu = Literal["x86_64", "aarch64"]
Mode = Literal["enforce", "warn", "audit"]
OnUnknown = Literal["fail", "warn", "allow"]
Promote = Literal["approval", "automatic"]
PackagesMode = Literal["enforce", "audit"]
EntriesMode = Literal["lenient", "strict"]
OnFailure = Literal["warn", "revoke"]


class Pool(Struct, frozen=True):
    """Nodes of one GPU SKU with one driver.

    Attributes:
        gpu: resolved SKU; None only where a question leaves it open (the verdict says so).
        driver: None only where a question leaves it open.
        os: ``wsl`` has the driver numbers of Windows.
        count: nodes.
    """

    name: str
    gpu: Gpu | None
    driver: Version | None
    os: Os = "linux"
    cpu: Cpu = "x86_64"
    count: int = 1

    @property
    def driver_os(self) -> DriverOs:
        """Whose driver numbers this pool has."""
        return "linux" if self.os == "linux" else "windows"


class CanaryPolicy(Struct, frozen=True):
    """What evidence a target asks for.

    Attributes:
        max_age_s: seconds that a passed run counts.
        suites: each must have passed.
        accept_development: runs outside containers count as well.
        soak: suites that must have passed besides before an entry is blessed.
        promote: who blesses a candidate whose suites have passed: a person, or the gate.
        on_failure: what a failing re-run does to a blessed entry, besides the warning.
    """

    require: bool = False
    max_age_s: int = 30 * 86400
    suites: tuple[str, ...] = ("smoke",)
    accept_development: bool = False
    soak: tuple[str, ...] = ()
    promote: Promote = "approval"
    on_failure: OnFailure = "warn"


class Policy(Struct, frozen=True):
    """What a target asks for, and what becomes of an answer.

    Attributes:
        mode: ``enforce`` denies what fails; ``warn`` and ``audit`` let it pass and say so.
        require_entry: a matrix entry must match.
        on_unknown: what an unknown verdict means; ``fail`` stops (exit status 3).
        packages: what a package without a record means: unknown, or under ``audit`` a warning.
        entries: whether an entry blesses a stack with GPU packages that it does not name; where it
            is ``strict`` it does not.
    """

    mode: Mode = "enforce"
    require_entry: bool = False
    canary: CanaryPolicy = field(default_factory=CanaryPolicy)
    on_unknown: OnUnknown = "fail"
    packages: PackagesMode = "enforce"
    entries: EntriesMode = "lenient"


class Target(Struct, frozen=True):
    """A place to run, as the rules see it; pools are resolved.

    Attributes:
        left_out: names of its other pools, where a question is about some of them only.
    """

    name: str
    pools: tuple[Pool, ...]
    policy: Policy = field(default_factory=Policy)
    left_out: tuple[str, ...] = ()
