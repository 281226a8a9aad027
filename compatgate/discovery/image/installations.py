"""Split what an image holds into its installations, and find the one that a command runs.

Each Python interpreter or virtual environment, each conda environment and each CUDA toolkit is an
installation: a program uses one of them, and the parts that belong to none (libraries of the
system, packages of the distribution, variables). A command names an installation only where it is
an interpreter: a script may start any other, also one that is called ``python``.

Sources: CPython ``Modules/getpath.py`` and ``Lib/site.py`` (``pyvenv.cfg``, user site); conda
documentation, "Managing environments"; Debian Python Policy, "Module Path".
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping

from compatgate.core.facts.nvidia import CudaArch
from compatgate.discovery.findings import find_toolkits
from compatgate.discovery.image.config import read_environment
from compatgate.discovery.image.layer_findings import LayerFindings, WitnessKind
from compatgate.discovery.image.reading import Interpreters, goes_back
from compatgate.discovery.installed_packages import Inventory
from compatgate.discovery.registry.image_spec import Config, Settings

_SYSTEM = "usr/lib/python3"
"""The interpreter of Debian and Ubuntu, which reads two folders of packages."""
_PACKAGES = re.compile(
    r"(?:(?P<prefix>.*?)/)?lib(?:32|64)?/(?P<python>python\d[\d.]*t?)/(?P<kind>site|dist)-packages/"
)
_ROOTS = (
    re.compile(r"(?P<root>.*?)/?conda-meta/[^/]+"),
    re.compile(r"(?P<root>.*?(?:site|dist)-packages)/.*"),
    re.compile(r"(?P<root>.*?)/?[^/]+\.(?:dist|egg)-info/.*"),
    re.compile(r"(?P<root>.*?)/?(?:EGG-INFO/.*|torch/version\.py)"),
)
_TOOLKIT = re.compile(r"(?P<root>(?:usr/local|opt|opt/nvidia)/cuda(?:-[\d.]+)?)/.*")
_STEERING = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPLATLIBDIR")
"""Variables that lead an interpreter to other packages."""
_USER_SITE = ".local/lib/"
_MOST_LINKS = 8
_OUTSIDE = (WitnessKind.LIBRARY, WitnessKind.TOOLKIT, WitnessKind.PACKAGE)


class Places:
    """Maps paths to installations."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._roots: dict[str, str] = {}
        self._conda = {
            match["root"] for path in paths if (match := _ROOTS[0].fullmatch(path)) is not None
        }
        self._shared: set[str] = set()
        for path in paths:
            if name := self._own(path):
                match = _PACKAGES.match(path)
                prefix = match["prefix"] or "" if match else name
                if self._roots.setdefault(prefix, name) != name:
                    self._shared.add(prefix)  # several interpreters: a library is of any

    def of(self, path: str) -> str:
        """Return the name of the installation that a file belongs to; ``""`` for none."""
        if name := self._own(path):
            return name
        folder = posixpath.dirname(path)
        while folder:
            if folder in self._roots and folder not in ("usr", "usr/local"):
                return "" if folder in self._shared else self._roots[folder]
            folder = posixpath.dirname(folder)
        return ""

    def of_prefix(self, prefix: str, python: str) -> str:
        """Return the installation of an interpreter in ``PREFIX/bin``; ``""`` for none."""
        if prefix in self._shared:
            name = f"{prefix}/lib/{python}".lstrip("/")
            return name if name in self._roots.values() else ""
        return self._roots.get(prefix, "")

    def _own(self, path: str) -> str:
        """Return the installation of a file of packages by its path alone."""
        if match := _PACKAGES.match(path):
            prefix = match["prefix"] or ""
            if match["kind"] == "dist" and prefix in ("usr", "usr/local"):
                return _SYSTEM
            return (
                prefix if prefix in self._conda else f"{prefix}/lib/{match['python']}".lstrip("/")
            )
        for pattern in (*_ROOTS, _TOOLKIT):
            if match := pattern.fullmatch(path):
                return match["root"] or "/"
        return ""


def split_findings(seen: LayerFindings, facts: CudaArch | None) -> dict[str, LayerFindings]:
    """Return the findings of each installation, with those that belong to none.

    Installations without a GPU component do not count. ``""`` names what belongs to none, where
    its CUDA is of another major than an installation's, or its code of a newer one.
    """
    places = Places(list(seen.paths.values()))
    of = {origin: places.of(path) for origin, path in seen.paths.items()}

    def place(origin: str) -> str:
        return of.get(origin) or of.get(origin.rpartition(": ")[0], "")

    names = {place(o.origin) for _, o in seen.observations if o.component != "python"}
    names |= {place(code.origin) for code in seen.codes}
    toolkits = {name for name in names if _TOOLKIT.fullmatch(f"{name}/x")}
    if len(toolkits) == 1:  # the toolkit of every installation
        of = {origin: "" if name in toolkits else name for origin, name in of.items()}
        names -= toolkits
    found = {name: _select(seen, {name, ""}, place, places) for name in sorted(names - {""})}
    majors: dict[bool, set[str]] = {True: set(), False: set()}
    for kind, one in seen.observations:
        inside = bool(place(one.origin))
        if one.component == "cuda" and (inside or kind in _OUTSIDE):
            majors[inside].add(one.version.partition(".")[0])
    code = find_toolkits((one for one in seen.codes if not place(one.origin)), facts)
    newest = max((int(one.version.partition(".")[0]) for one in code), default=0)
    newer = newest > max(map(int, majors[True]), default=newest)
    if newer or (majors[True] and majors[False] - majors[True]):
        found[""] = _select(seen, {""}, place, places)
    return found


def _select(
    seen: LayerFindings, names: set[str], place: Callable[[str], str], places: Places
) -> LayerFindings:
    inventory = Inventory(
        {
            folder: one
            for folder, one in seen.inventory.distributions.items()
            if places.of(folder if one.by_conda else f"{folder}/METADATA") in names
        },
        {path: one for path, one in seen.inventory.files.items() if place(one.origin) in names},
    )
    return LayerFindings(
        observations=[(kind, one) for kind, one in seen.observations if place(one.origin) in names],
        majors=[one for one in seen.majors if place(one.origin) in names],
        codes=[one for one in seen.codes if place(one.origin) in names],
        open=list(seen.open),
        inventory=inventory,
        unread=[(origin, why) for origin, why in seen.unread if place(origin) in names],
        jax_plugins=seen.jax_plugins,
        content=seen.content,
        paths=seen.paths,
    )


def watched_folders(config: Config) -> frozenset[str]:
    """Return the folders of an image's ``PATH``, and those above them."""
    folders = {folder.strip("/") for folder in _path_of(read_environment(config))}
    return frozenset(f for one in folders for f in (one, *_above(one)) if f)


def find_interpreters(seen: LayerFindings, config: Config) -> Interpreters:
    """Return the interpreters of an image, of which `watched_folders` were watched.

    None is named where variables or packages in a user's home may lead each to other packages.
    """
    settings, environment = config.config or Settings(), read_environment(config)
    places = Places(list(seen.paths.values()))
    steered = any(environment.get(name) for name in _STEERING)
    if steered or any(_USER_SITE in path for path in seen.paths.values()):
        return Interpreters()
    interpreters = {path: _installation_of(path, seen, places) for path in seen.interpreters}
    led = _led_away(seen, places) if seen.path_files else set()
    interpreters = {path: "" if one in led else one for path, one in interpreters.items()}
    folders = tuple(_resolve(folder, seen.links, interpreters) for folder in _path_of(environment))
    return Interpreters(
        interpreters, folders, (*(settings.entrypoint or ()), *(settings.cmd or ()))
    )


def _led_away(seen: LayerFindings, places: Places) -> set[str]:
    """Return the installations to which a ``.pth`` file adds packages of another one."""
    owners: dict[str, set[str]] = {}
    for path in seen.paths.values():
        if name := places.of(path):
            for folder in _above(path):
                owners.setdefault(folder, set()).add(name)
    led = set()
    for path, folders in seen.path_files.items():
        own, here = places.of(path), posixpath.dirname(path)
        for folder in folders:
            target = posixpath.normpath(posixpath.join("/", here, folder)).strip("/")
            if owners.get(target, {own}) != {own}:
                led.add(own)
    return led


def _path_of(environment: Mapping[str, str]) -> list[str]:
    return [folder for folder in environment.get("PATH", "").split(":") if folder]


def _above(path: str) -> Iterable[str]:
    while path := posixpath.dirname(path):
        yield path


def _resolve(folder: str, links: Mapping[str, str], programs: Iterable[str]) -> str:
    """Return a folder without links; ``""`` where a link leads to no interpreter that was seen."""
    if goes_back(folder):
        return ""
    path = posixpath.normpath(f"/{folder}").strip("/")
    for above in (path, *_above(path)):
        if above in links:
            if goes_back(links[above]):
                return ""
            target = posixpath.join("/", posixpath.dirname(above), links[above])
            path = posixpath.normpath(target + path.removeprefix(above)).strip("/")
            return path if path in map(posixpath.dirname, programs) else ""
    return path


def _installation_of(path: str, seen: LayerFindings, places: Places) -> str:
    """Return the installation of an interpreter: its venv, or that of the program it leads to.

    What leads to a script, or to no file that was read, may start any interpreter.
    """
    chosen = None
    for _ in range(_MOST_LINKS):
        prefix, name = posixpath.dirname(posixpath.dirname(path)), posixpath.basename(path)
        if chosen is None and prefix in seen.venvs:
            chosen = places.of_prefix(prefix, name) if seen.venvs[prefix] else ""
        link = seen.interpreters.get(path)
        if link is None or goes_back(link):
            return ""
        if not link:
            return places.of_prefix(prefix, name) if chosen is None else chosen
        target = posixpath.join("/", posixpath.dirname(path), link)
        path = posixpath.normpath(target).lstrip("/")
    return ""
