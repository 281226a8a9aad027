"""What is found in files, before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts.packages import FILES_ARE_READ
from compatgate.core.facts.records import Record
from compatgate.discovery.gpucode import GpuCode
from compatgate.discovery.libraries import library_observation, major_observation
from compatgate.discovery.observed import Observation
from compatgate.discovery.python_env import read_answer
from compatgate.discovery.stack.code import CodeFile


class Findings(Struct):
    """What was found.

    Attributes:
        observations: versions of components, the witness that decides first.
        majors: components of which only the major version is known, from a library's name.
        files: those with GPU code.
        measured: what the files of packages hold, by the name of the package.
        owned: origins of files that stand in such a record, with the name of the package.
        open: what could not be read, in sentences.
    """

    observations: list[Observation] = []
    majors: list[Observation] = []
    files: list[CodeFile] = []
    measured: dict[str, Record] = {}
    owned: dict[str, str] = {}
    open: list[str] = []

    def add_library(self, path: str, *, how: str = "") -> None:
        """Take what the name of a library tells; ``how`` explains where the name stands."""
        origin = f"{path}{how}"
        if seen := library_observation(path):
            self.observations.append(replace(seen, origin=origin))
        elif seen := major_observation(path):
            self.majors.append(replace(seen, origin=origin))

    def add_needed(self, origin: str, needed: Iterable[str]) -> None:
        """Take what a library needs: CUDA's major, from ``libcudart.so.12``."""
        for name in needed:
            if seen := major_observation(name):
                how = f"{origin}: needs {name}"
                self.majors.append(replace(seen, origin=how, confidence="derived"))

    def add_packages(
        self, packages: dict[str, str], origin: str, conda: Iterable[str] = ()
    ) -> None:
        """Take what the metadata of Python distributions states.

        Args:
            packages: normalised name to version.
            origin: where they are.
            conda: names of those that conda installed.
        """
        answer = read_answer({"packages": packages, "conda": conda}, origin, FILES_ARE_READ)
        self.observations += (o for o in answer.observations if o.component != "python")

    def add_code(self, origin: str, code: GpuCode, owner: str = "") -> None:
        """Take a file's GPU code; a file without is not kept."""
        if code.entries:
            self.files.append(CodeFile.of(origin, owner, code))

    def add_unread(self, origin: str, why: str) -> None:
        """Note a file that cannot be read."""
        self.open.append(f"{origin} cannot be read and may hold GPU code: {why}")

    def extend(self, other: Findings) -> None:
        """Take what was found elsewhere."""
        self.observations += other.observations
        self.majors += other.majors
        self.files += other.files
        self.measured = {**other.measured, **self.measured}
        self.owned |= other.owned
        self.open += other.open
