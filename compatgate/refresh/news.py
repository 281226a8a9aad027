"""What an index has and the facts do not, as the commands report it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from compatgate.discovery.wheels import IndexFile

Kind = Literal["release", "build", "wheel", "rebuild", "python"]
"""``release``: a release; ``build``: a build for another CUDA; ``wheel``: a wheel for another
platform or Python; ``rebuild``: another wheel in the place of a known one; ``python``: wheels for
more Pythons."""

NOT_TOLD = "minimum driver, minimum capability, GPU code, builds of other indexes"
"""What an index cannot tell of a framework or library: those fields stay absent."""


class News(Struct, frozen=True):
    """Something that the facts do not know.

    Attributes:
        package: on the index.
        version: as the index writes it.
        what: in words.
        facts: fact file that it belongs to (``packages/xformers``); ``""``: none can be written.
        wheels: to measure.
        entry: of a framework or library, to lay over the facts.
        uploaded: ISO time; ``""`` where the index does not say.
    """

    package: str
    version: str
    kind: Kind
    what: str
    facts: str
    wheels: tuple[IndexFile, ...] = ()
    entry: dict[str, Any] | None = None
    uploaded: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the form that the command prints."""
        return {
            "package": self.package,
            "version": self.version,
            "kind": self.kind,
            "what": self.what,
            "facts": self.facts or None,
            "wheels": [{"name": wheel.name, "sha256": wheel.sha256} for wheel in self.wheels],
            "uploaded": self.uploaded or None,
        }
