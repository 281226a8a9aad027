"""Every spelling of a version that drivers, toolkits, libraries and package indexes use."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from compatgate.core.components import Scheme, resolve_component
from compatgate.core.versions.labels import built_for, tag_parts
from compatgate.core.versions.version import Version, make
from compatgate.errors import BadInput

_Parser = Callable[[str, str], Version]
"""From a component's name and a text; raises `BadInput`."""


@lru_cache(maxsize=16384)
def parse_version(component: str, text: str) -> Version:
    """Read a version as written for a component.

    Args:
        component: canonical name (or an alias) of the component.
        text: e.g. ``535.104.05``, ``12040``, ``90100``, ``2.4.1+cu121``, ``9.1.0.70-1+cuda12.4``.

    Raises:
        BadInput: the text is not a version of this component; says what one looks like.
    """
    resolved = resolve_component(component)
    clean = text.strip()
    if not clean.isascii():
        raise _bad(resolved.component.name, text, "versions are written in ASCII")
    version = _PARSERS[resolved.component.scheme](resolved.component.name, clean)
    itself = resolved.component.name == "cuda"  # nvidia-cuda-runtime-cu12 is CUDA 12, not for it
    if resolved.cuda and version.cuda is None and not version.local and not itself:
        label = f"cu{''.join(map(str, resolved.cuda))}"  # nvidia-cudnn-cu12 is a build for CUDA 12
        return Version(f"{clean}+{label}", version.parts, version.key, resolved.cuda, label)
    return version


def _bad(component: str, text: str, example: str) -> BadInput:
    return BadInput(
        f"{text!r} is not a version of {component}", field=component, value=text, hint=example
    )


_DRIVER = re.compile(r"(\d{2,4})\.(\d{1,4})(?:\.(\d{1,4}))?")


def _driver(name: str, text: str) -> Version:
    match = _DRIVER.fullmatch(text)
    if not match:
        branch = re.fullmatch(r"[rR]?\d{3}(?:\.x)?", text)
        why = "a branch is not a driver version; " if branch else ""
        raise _bad(name, text, f"{why}write the full version, like 535.104.05 or 527.41")
    return make(text, tuple(int(p) for p in match.groups() if p is not None))


_CUDA = re.compile(r"[vV]?(\d{1,2})\.(\d{1,2})(?:\.(\d{1,3}))?(?:\.(\d{1,3}))?(?:-\d+)?")
_CUDA_TAG = re.compile(r"cu(\d{2,4})")

_LARGEST_UPDATE = 9
"""A third part above this is a component's build number (12.4.131), not a toolkit update."""


def _cuda(name: str, text: str) -> Version:
    example = "like 12.4, 12.4.1 or 12040"
    if match := _CUDA.fullmatch(text):
        parts = tuple(int(part) for part in match.groups()[:3] if part)
        stated = len(parts) < 3 or parts[2] <= _LARGEST_UPDATE
        return make(text, parts if stated else parts[:2])
    if re.fullmatch(r"\d{4,5}", text):
        number = int(text)
        if number % 10 == 0 and number // 1000 >= 7:
            return make(text, (number // 1000, number % 1000 // 10))
    if match := _CUDA_TAG.fullmatch(text.lower()):
        parts = tag_parts(match[1])
        if len(parts) == 2:
            return make(text, parts)
    if re.fullmatch(r"\d{1,2}", text):
        example = f"a major alone does not name a toolkit; write {text}.x with its minor"
    raise _bad(name, text, example)


_LIBRARY = re.compile(
    r"v?(\d{1,3}(?:\.\d{1,4}){1,3})(?:\.post\d+)?(?:-[\w.~]*?\d)?(?:\+(?P<local>[\w.\-]+))?"
)


def _library(example: str) -> _Parser:
    """Reads dotted versions, and NVIDIA's integers, of a library whose fourth part is a build."""

    def read(name: str, text: str) -> Version:
        stem, _, label = text.partition("+")
        if parts := _of_integer(stem):
            return _built(text, parts, label)
        match = _LIBRARY.fullmatch(text)
        if not match:
            raise _bad(name, text, example)
        return _built(text, tuple(int(p) for p in match[1].split(".")), match["local"] or "")

    return read


def _of_integer(digits: str) -> tuple[int, ...] | None:
    """``90100`` is 9.1.0, and ``8907`` of the older form 8.9.7.

    Sources: cuDNN 9.0.0 Release Notes, CUDNN_VERSION is major * 1000 + ... before 9 and major *
    10000 + ... from 9 on; NVIDIA/nccl src/nccl.h.in, NCCL_VERSION changed likewise with 2.9.
    """
    if not re.fullmatch(r"\d{4,6}", digits):
        return None
    number = int(digits)
    scale = 1000 if number < 10000 else 10000
    return (number // scale, number % scale // 100, number % 100)


def _built(text: str, parts: tuple[int, ...], label: str) -> Version:
    """A fourth part is a build number without meaning for compatibility: three compare."""
    local = label.lower()
    three = make(text, parts[:3], cuda=built_for(local), local=local)
    return Version(text, parts, three.key, three.cuda, local)


_PYTHON = re.compile(r"(?:[Pp]ython\s*)?(\d)\.(\d{1,2})(?:\.(\d{1,2}))?(?:(?:a|b|rc)\d+)?(t)?\+?")
_CPYTHON_TAG = re.compile(r"cp(\d)(\d{1,2})(t)?")


def _python(name: str, text: str) -> Version:
    match = _PYTHON.fullmatch(text)
    if match:
        parts = tuple(int(p) for p in match.groups()[:3] if p is not None)
        return make(text, parts, local="t" if match[4] else "")
    if tag := _CPYTHON_TAG.fullmatch(text):
        return make(text, (int(tag[1]), int(tag[2])), local="t" if tag[3] else "")
    raise _bad(name, text, "like 3.11, 3.11.7 or 3.13t")


_SIMPLE = re.compile(r"v?(\d+(?:\.\d+)*)(?:\.post\d+)?(?:\+([A-Za-z0-9.\-_]+))?")


def _pep440(name: str, text: str) -> Version:
    if match := _SIMPLE.fullmatch(text):
        local = (match[2] or "").lower()
        if len(match[1]) > 60:
            raise _bad(name, text, "like 2.4.1 or 2.4.1+cu121")
        parts = tuple(int(p) for p in match[1].split("."))
        return make(text, parts, cuda=built_for(local), local=local)
    from packaging.version import InvalidVersion
    from packaging.version import Version as Pep440

    try:
        parsed = Pep440(text)
    except InvalidVersion:
        raise _bad(name, text, "like 2.4.1 or 2.4.1+cu121") from None
    local = parsed.local or ""
    return make(
        text,
        parsed.release,
        cuda=built_for(local),
        local=local,
        prerelease=parsed.is_prerelease,
    )


_PARSERS: dict[Scheme, _Parser] = {
    "driver": _driver,
    "cuda": _cuda,
    "cudnn": _library("like 9.1.0, 9.1.0.70, 90100 or 8907"),
    "nccl": _library("like 2.21.5 or 22105"),
    "python": _python,
    "pep440": _pep440,
}
