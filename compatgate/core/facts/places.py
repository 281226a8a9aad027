"""Hold the places of wheels beside the package index, by package and version label."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from compatgate.core.facts.nvidia import Source


class WheelPlace(Struct, frozen=True):
    """A place of the wheels of some packages; texts in braces are filled in.

    ``{package}`` is the name as on an index, ``{name}`` as in file names, ``{version}`` without its
    label, ``{label}`` the label; groups of ``labels`` have their names. ``{py}`` (``311``) and
    ``{cpu}`` are of the platform.

    Attributes:
        kind: ``index`` (PEP 503, without the package), ``page`` (a page that links the wheels) or
            ``file`` (the folder of the file; ``files`` are its names).
        labels: regular expression of the whole label; empty: wheels without one.
        files: names of the wheel that were seen, for ``file``; a name with ``win`` is for Windows.
        hosts: hosts that its links and redirects may lead to, with that of ``url``.
    """

    name: str
    packages: tuple[str, ...]
    kind: Literal["index", "page", "file"]
    url: str
    source: Source
    labels: str = ""
    files: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class FoundPlace(Struct, frozen=True):
    """A place with its address for one release.

    Attributes:
        fields: values of the texts in braces, but for those of the platform.
    """

    place: WheelPlace
    url: str
    fields: dict[str, str]


class WheelPlaces(Struct, frozen=True):
    """Table ``wheel_places``."""

    places: tuple[WheelPlace, ...]

    def find(self, package: str, version: str) -> Iterator[FoundPlace]:
        """Yield the places of a release, ``torch`` and ``2.4.1+cu118``."""
        public, _, label = version.partition("+")
        for place in self.places:
            match = re.fullmatch(place.labels, label)
            if package not in place.packages or match is None:
                continue
            fields = {name: text or "" for name, text in match.groupdict().items()}
            if torch := fields.get("torch"):  # 28 and 2.8 are one
                fields["torch"] = torch if "." in torch else f"{torch[0]}.{torch[1:]}"
            fields |= {"package": package, "name": package.replace("-", "_")}
            fields |= {"version": public, "label": label}
            yield FoundPlace(place, place.url.format_map(fields), fields)
