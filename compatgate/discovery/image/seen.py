"""What the layers of an image tell, gathered file by file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum

from msgspec import Struct, field
from msgspec.structs import replace

from compatgate.core.facts.packages import FILES_ARE_READ, Packages
from compatgate.discovery.installed import Inventory
from compatgate.discovery.observed import Observation
from compatgate.discovery.stack import CodeFile, Findings

_JAX_PLUGIN = re.compile(r"jax-cuda(\d{2})(?:-plugin|-pjrt)")
_MOST_NOTES = 200


class Witness(IntEnum):
    """Kinds of witnesses; the lower decides.

    What a framework is installed with (wheels, conda) is what it loads; the distribution's
    packages and the base image's variables come after the libraries that are there.
    """

    FRAMEWORK = 0
    WHEEL = 1
    LABEL = 2
    CONDA = 3
    LIBRARY = 4
    TOOLKIT = 5
    PACKAGE = 6
    CONFIG = 7


class Seen(Struct):
    """Everything that was seen.

    Attributes:
        observations: with the kind of their witness, in the order in which they were met.
        majors: components of which a library's name tells only the major version.
        codes: files with GPU code.
        open: what could not be read, in sentences.
        inventory: distributions, and the files that may be theirs.
        unread: files that may hold GPU code and could not be read, and why.
        jax_plugins: CUDA major of the plugin that JAX has, by the folder that both are in.
    """

    observations: list[tuple[Witness, Observation]] = []
    majors: list[Observation] = []
    codes: list[CodeFile] = []
    open: list[str] = []
    inventory: Inventory = field(default_factory=Inventory)
    unread: list[tuple[str, str]] = []
    jax_plugins: dict[str, str] = {}

    def add(self, witness: Witness, observations: Iterable[Observation | None]) -> None:
        """Take observations of one kind; None is passed over."""
        self.observations += ((witness, o) for o in observations if o is not None)

    def add_distribution(self, name: str, path: str) -> None:
        """Take a Python distribution that says something of another one."""
        if match := _JAX_PLUGIN.fullmatch(name):
            self.jax_plugins[path.rsplit("/", 2)[0]] = match[1]

    def note(self, sentence: str) -> None:
        """Say what could not be read, once."""
        if len(self.open) < _MOST_NOTES and sentence not in self.open:
            self.open.append(sentence)
            if len(self.open) == _MOST_NOTES:
                self.open.append("and more, which are not listed")

    def findings(
        self, known: Packages = FILES_ARE_READ, toolkits: Mapping[str, str] | None = None
    ) -> Findings:
        """All of it, the witness that decides first.

        Args:
            known: what the facts say of packages.
            toolkits: version of PTX to the first toolkit that had it.
        """
        installed = self.inventory.installed(known, toolkits or {})
        self.add(Witness.WHEEL, installed.observations)
        for origin, why in self.unread:
            if origin not in installed.owned:
                self.note(f"{origin} cannot be read and may hold GPU code: {why}")
        ordered = sorted(self.observations, key=lambda pair: pair[0])
        channels = self._channels()
        ranked = (
            _labelled(self._with_plugin(o), channels) if w <= Witness.WHEEL else o
            for w, o in ordered
        )
        return Findings(
            list(dict.fromkeys(ranked)),
            self.majors,
            self.codes,
            measured=installed.measured,
            owned=installed.owned,
            open=self.open,
        )

    def _with_plugin(self, seen: Observation) -> Observation:
        """JAX has no build label; its plugin, which may be met later, tells the CUDA."""
        if seen.component != "jax" or "+" in seen.version or not self.jax_plugins:
            return seen
        for folder, major in self.jax_plugins.items():
            if f": {folder}/" in seen.origin:
                return replace(seen, version=f"{seen.version}+cuda{major}")
        return seen

    def _channels(self) -> dict[tuple[str, str], str]:
        """The labels of conda's records, by component and version.

        A package of conda installs metadata as a wheel does; only the record tells them apart.
        """
        found: dict[tuple[str, str], str] = {}
        for witness, seen in self.observations:
            public, _, label = seen.version.partition("+")
            if witness == Witness.CONDA and label:
                found.setdefault((seen.component, public), label)
        return found

    def components(self) -> set[str]:
        """What has been seen; ``arch`` when GPU code has."""
        found = {o.component for _, o in self.observations}
        return found | {"arch"} if self.codes else found


def _labelled(seen: Observation, channels: dict[tuple[str, str], str]) -> Observation:
    label = channels.get((seen.component, seen.version.partition(".post")[0]))
    if not label or "+" in seen.version:
        return seen
    return replace(seen, version=f"{seen.version}+{label}")
