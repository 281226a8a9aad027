"""Find the CUDA libraries that this machine would load, and read their versions from files' names.

Order of the witnesses is the dynamic linker's: ``LD_LIBRARY_PATH``, then its cache; the toolkit's
own version file comes last, since a program need not load that toolkit's libraries.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from compatgate.core.package_wheels import runtime_major
from compatgate.core.vocabulary import DLLS, LIBRARIES
from compatgate.discovery.observations import Observation
from compatgate.strict_json import DECODE_ERRORS

_STEM = f"(?P<stem>{'|'.join(LIBRARIES)})"
_FILE = re.compile(rf"{_STEM}\.so\.(?P<v>[\d.]+)")
_SONAME = re.compile(rf"{_STEM}\.so\.(?P<major>\d+)(?:\.\d+)?")
_HASHED = re.compile(r"-[0-9a-f]{8,}(?=\.(?:so|dll$))")
"""auditwheel and delvewheel put a hash in the name of a library that they copy into a wheel."""
_DLL = re.compile(rf"(?i:(?P<stem>{'|'.join(DLLS)})_(?P<digits>\d+)\.dll)")
_COMPAT = re.compile(r"cuda-?(?P<cuda>\d{1,2}\.\d{1,2})[^/]*/compat/(?:.*/)?libcuda\.so\.\d")
_CACHED = re.compile(r"^\s*(?P<soname>lib\S+)\s+\(.*\)\s+=>\s+(?P<path>\S+)", re.MULTILINE)
_TEXT = re.compile(r"CUDA Version\s+(\d{1,2}\.\d{1,2}(?:\.\d+)?)")
_TIMEOUT_S = 10


def observe_library(path: str) -> Observation | None:
    """Return the version in the real file name of a library; None when the name has none.

    ``libcudart.so.12.4.127`` is CUDA 12.4; a file that is called ``libcudart.so.12`` or
    ``libcudart.so.11.0`` (the soname of all of CUDA 11) tells only the major.
    """
    if match := _COMPAT.search(path):
        return Observation("cuda-compat", match["cuda"], path, "metadata")
    match = _FILE.fullmatch(_parse_name(path))
    if match is None or match["v"].count(".") < 2:
        return None
    return Observation(LIBRARIES[match["stem"]], match["v"], path, "metadata")


def observe_major(path: str) -> Observation | None:
    """Return the major version that a soname or DLL tells: 11 of ``libcudart.so.11.0``; else None.

    ``cudart64_110.dll`` is of CUDA 11, ``cudart64_80.dll`` of CUDA 8, ``cudnn64_9.dll`` of cuDNN 9.
    """
    name = _parse_name(path)
    if match := _SONAME.fullmatch(name):
        return Observation(LIBRARIES[match["stem"]], match["major"], path, "metadata")
    if match := _DLL.fullmatch(name):
        component, major = DLLS[match["stem"].lower()], match["digits"]
        if component == "cuda":
            major = str(runtime_major(name))
        return Observation(component, major, path, "metadata")
    return None


def _parse_name(path: str) -> str:
    return _HASHED.sub("", path).rpartition("/")[2]


def parse_ldconfig(text: str) -> list[str]:
    """Return paths of the CUDA libraries in the output of ``ldconfig -p``."""
    return [
        match["path"]
        for match in _CACHED.finditer(text)
        if match["soname"].partition(".so")[0] in LIBRARIES
    ]


def parse_version_file(text: str, path: str) -> Observation | None:
    """Read a toolkit's ``version.json``, or the ``version.txt`` of CUDA 10 and before."""
    version: object = None
    if path.endswith(".json"):
        try:
            document = msgspec.json.decode(text)
        except DECODE_ERRORS:
            return None
        toolkit = document.get("cuda") if isinstance(document, dict) else None
        version = toolkit.get("version") if isinstance(toolkit, dict) else None
    elif match := _TEXT.search(text):
        version = match[1]
    if not isinstance(version, str):
        return None
    return Observation("cuda", version, path, "metadata")


def find_libraries(
    environment: Mapping[str, str] | None = None, *, prefix: str = "/usr/local"
) -> list[Observation]:
    """Return the CUDA libraries and toolkits that are found, in the order of the linker."""
    environment = os.environ if environment is None else environment
    searched = environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    paths = [
        os.path.join(folder, name)
        for folder in searched
        for name in _names_in(folder)
        if name.partition(".so")[0] in LIBRARIES and ".so." in name
    ]
    cache = _ldconfig()
    paths += parse_ldconfig(cache)
    libraries = [observe_library(os.path.realpath(path)) for path in paths]
    libraries += [_toolkit(folder) for folder in _toolkits(prefix)]
    libcuda = [path for folder in searched for path in _compat_in(folder)]
    libcuda += [m["path"] for m in _CACHED.finditer(cache) if m["soname"] == "libcuda.so.1"]
    # The forward-compatibility package counts if the linker finds its libcuda first.
    first = observe_library(os.path.realpath(libcuda[0])) if libcuda else None
    libraries.append(first if first and first.component == "cuda-compat" else None)
    return list(dict.fromkeys(filter(None, libraries)))


def note_unused_compat(found: Iterable[Observation], *, prefix: str = "/usr/local") -> list[str]:
    """Return notes on installed forward-compatibility packages that the linker does not find."""
    loaded = {o.version for o in found if o.component == "cuda-compat"}
    paths = [p for folder in _toolkits(prefix) for p in _compat_in(os.path.join(folder, "compat"))]
    seen = dict.fromkeys(observe_library(os.path.realpath(path)) for path in paths)
    return [
        f"cuda-compat {o.version} is installed ({o.origin}) and does not count: the linker does "
        "not find it"
        for o in seen
        if o and o.component == "cuda-compat" and o.version not in loaded
    ]


def _compat_in(folder: str) -> Iterator[str]:
    return (os.path.join(folder, n) for n in _names_in(folder) if n.startswith("libcuda.so.1"))


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder)) if folder else []
    except OSError:
        return []


def _toolkits(prefix: str) -> Iterable[str]:
    """Return the toolkit folders without duplicates; the target of ``cuda`` comes first."""
    names = [name for name in _names_in(prefix) if re.fullmatch(r"cuda(-\d+(\.\d+)?)?", name)]
    return dict.fromkeys(os.path.realpath(os.path.join(prefix, name)) for name in names)


def _toolkit(folder: str) -> Observation | None:
    for name in ("version.json", "version.txt"):
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return parse_version_file(file.read(65536), path)
        except OSError:
            continue
    return None


def _ldconfig() -> str:
    for command in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if os.path.exists(command):
            try:
                result = subprocess.run(  # noqa: S603 - a fixed path and argument
                    [command, "-p"], capture_output=True, timeout=_TIMEOUT_S, check=False
                )
            except (OSError, subprocess.TimeoutExpired):
                return ""
            return result.stdout.decode("utf-8", "replace")
    return ""
