"""Read and compare versions as drivers, toolkits, libraries and package indexes spell them.

Parts compare as numbers, never as text: driver 450.248.02 is newer than 450.80.02, cuDNN 9.14
is newer than 9.2. Messages show versions as they were written. Labels and tags (``cu121``,
``cuda12.4``, ``rocm6.2``) say what a build was made for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct

from compatgate.core.components import Scheme, canonical_name, resolve_component
from compatgate.errors import BadInput

CudaBuild = tuple[int, ...]
"""The CUDA a component was built for: ``(12, 1)``, or ``(12,)`` where only the major is stated."""


class Version(Struct, frozen=True, gc=False, array_like=True, eq=False, order=False):
    """A version that compares by its numbers."""

    text: str  # as written by the user or the vendor
    parts: tuple[int, ...]  # the numeric release as stated, e.g. ``(535, 104, 5)``.
    # sort key: parts without trailing zeros, then 0 for a pre-release, 1 otherwise
    key: tuple[tuple[int, ...], int]
    # the CUDA that the component was built for, from its local version (``+cu121``)
    cuda: CudaBuild | None = None
    local: str = ""  # the local version label without the plus sign, ``""`` without a label
    # the version in the form of PEP 440, where its numbers and label do not say all of it (an
    # epoch, a pre-, post- or development release); else ``""``
    whole: str = ""

    @property
    def major(self) -> int:
        """Return the first part."""
        return self.parts[0]

    @property
    def is_major(self) -> bool:
        """Return whether it states its major alone."""
        return len(self.parts) == 1

    @property
    def minor(self) -> int:
        """Return the second part, 0 when not stated."""
        return self.parts[1] if len(self.parts) > 1 else 0

    @property
    def major_minor(self) -> tuple[int, int]:
        """Return the first two parts."""
        return (self.parts[0], self.parts[1] if len(self.parts) > 1 else 0)

    @property
    def public(self) -> str:
        """Return the text without the local label."""
        return self.text.partition("+")[0]

    def at(self, places: int) -> tuple[int, ...]:
        """Return the first ``places`` parts, padded with zeros."""
        return (*self.parts, *(0,) * places)[:places]

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.key == other.key

    def __ne__(self, other: object) -> bool:  # a Struct's own compares identities
        return not self == other

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Version) -> bool:
        return self.key < other.key

    def __le__(self, other: Version) -> bool:
        return self.key <= other.key

    def __gt__(self, other: Version) -> bool:
        return self.key > other.key

    def __ge__(self, other: Version) -> bool:
        return self.key >= other.key


def make_version(
    text: str,
    parts: tuple[int, ...],
    *,
    cuda: CudaBuild | None = None,
    local: str = "",
    prerelease: bool = False,
    whole: str = "",
) -> Version:
    """Return a version from its parts; messages show ``text``."""
    end = len(parts)
    while end > 1 and parts[end - 1] == 0:
        end -= 1
    return Version(text, parts, (parts[:end], 0 if prerelease else 1), cuda, local, whole)


def agree(one: Version, other: Version) -> bool:
    """Return whether two versions of one component are the same as far as both are stated.

    ``12.4`` and ``12.4.1`` agree, ``9.1.0`` and ``9.1.0.70+cu12``, ``+cu12`` and ``+cu124``; two
    builds (``+cu121`` and ``+cu124``, ``+cu121`` and ``+cpu``) do not.
    """
    if not _share_prefix(one.parts, other.parts):
        return False
    if one.cuda and other.cuda:
        return _share_prefix(one.cuda, other.cuda)
    return not (one.local and other.local) or one.local == other.local


def _share_prefix(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(a == b for a, b in zip(one, other, strict=False))


def same_release(component: str, one: Version, other: Version) -> bool:
    """Return whether two spellings can denote the same release.

    Where one states less (the driver API knows CUDA 12.4, not its update; Python 3.11), only the
    parts that both state are compared.
    """
    if one.cuda and other.cuda and not _share_prefix(one.cuda, other.cuda):
        return False  # pins and GPU code belong to the build
    if component in ("cuda", "python"):
        return _share_prefix(one.parts, other.parts)
    return one.key == other.key


def format_parts(parts: tuple[int, ...]) -> str:
    """Format parts as dotted text."""
    return ".".join(map(str, parts))


_LOCAL_CUDA = re.compile(
    r"(?:^|[.\-_])(?:(?:cu|cuda(?=[.\-_]?\d{3}))[.\-_]?(?P<tag>[1-9]\d{1,3})"
    r"|cuda[.\-_]?(?P<dotted>[1-9]\d?(?:\.\d{1,2})?))"
)


def cuda_of_label(local: str) -> CudaBuild | None:
    """Return the CUDA of a label: ``cu121``, ``cu-121``, ``cuda12.4``, ``nv25.cu129``."""
    match = _LOCAL_CUDA.search(local)
    if not match:
        return None
    if match["tag"]:
        return split_tag(match["tag"])
    return tuple(int(p) for p in match["dotted"].split("."))


def split_tag(digits: str) -> tuple[int, ...]:
    """Read a tag's digits: ``121`` is 12.1, ``12`` is 12, ``92`` is 9.2, ``1210`` is 12.10."""
    if len(digits) == 2:
        number = int(digits)
        return (number,) if number < 50 else (number // 10, number % 10)
    return (int(digits[:2]), int(digits[2:]))


_OTHER_GPUS = {"rocm": "AMD", "xpu": "Intel"}


def gpus_of_label(label: str) -> str:
    """Return the vendor that a build's label names (``rocm6.2``: AMD); empty for NVIDIA."""
    return next((gpus for word, gpus in _OTHER_GPUS.items() if label.startswith(word)), "")


_Parser = Callable[[str, str], Version]  # from a component's name and a text; raises `BadInput`


@lru_cache(maxsize=16384)
def parse_version(component: str, text: str) -> Version:
    """Read a version as written for a component.

    Texts are ``535.104.05``, ``12040``, ``90100``, ``2.4.1+cu121``, ``9.1.0.70-1+cuda12.4``.
    """
    resolved = resolve_component(component)
    clean = text.strip()
    if not clean.isascii():
        raise _version_error(resolved.component.name, text, "versions are written in ASCII")
    if clean[:1].isalpha():
        # Files and tags repeat the part's own name: TensorRT-8.6.1.6. Any other word is refused.
        match = _NAMED.fullmatch(clean)
        if match and canonical_name(match[1].lower()) == resolved.component.name:
            clean = match[2]
    if _SERIES.fullmatch(clean) and resolved.component.scheme != "driver":
        clean = clean[:-2]
    version = _PARSERS[resolved.component.scheme](resolved.component.name, clean)
    itself = resolved.component.name == "cuda"  # nvidia-cuda-runtime-cu12 is CUDA 12, not for it
    if resolved.cuda and version.cuda is None and not version.local and not itself:
        label = f"cu{''.join(map(str, resolved.cuda))}"  # nvidia-cudnn-cu12 is a build for CUDA 12
        return Version(f"{clean}+{label}", version.parts, version.key, resolved.cuda, label)
    return version


_SERIES = re.compile(r"\d+(?:\.\d+)+\.[xX]")
"""A series, ``2.2.x``, which is ``2.2``; a major alone is refused where it says too little."""
_NAMED = re.compile(r"([A-Za-z].*?)[-_ ]*([vb]?\d.*)")


def _version_error(component: str, text: str, example: str) -> BadInput:
    return BadInput(
        f"{text!r} is not a version of {component}", field=component, value=text, hint=example
    )


_DRIVER = re.compile(r"[vV]?(\d{2,4})\.(\d{1,4})(?:\.(\d{1,4}))?")


def _parse_driver(name: str, text: str) -> Version:
    match = _DRIVER.fullmatch(text)
    if not match:
        branch = re.fullmatch(r"[rR]?\d{3}(?:\.x)?", text)
        why = "a branch is not a driver version; " if branch else ""
        raise _version_error(name, text, f"{why}write the full version, like 535.104.05 or 527.41")
    return make_version(text, tuple(int(p) for p in match.groups() if p is not None))


_CUDA = re.compile(
    r"(?:release )?[vV]?(\d{1,2})\.(\d{1,2})(?:\.(\d{1,3}))?(?:\.(\d{1,3}))?"
    r"(?:-\d+|\.r\d+\.\d+(?:/compiler\.[\d_]+)?)?"
)
"""A toolkit, as nvcc prints it, too: ``release 12.1``, ``cuda_12.1.r12.1/compiler.32688072_0``."""
_CUDA_TAG = re.compile(r"cu(\d{2,4})")
_LARGEST_UPDATE = 9
"""A third part above this is a component's build number (12.4.131), not a toolkit update."""
_FIRST_WITH_UPDATES = 11
"""Before this major, the third part is the build number of the release itself (8.0.44, 8.0.61)."""


def _parse_cuda(name: str, text: str) -> Version:
    example = "like 12.4, 12.4.1 or 12040"
    if match := _CUDA.fullmatch(text):
        parts = tuple(int(part) for part in match.groups()[:3] if part)
        of_release = parts[0] < _FIRST_WITH_UPDATES or len(parts) < 3 or parts[2] <= _LARGEST_UPDATE
        return make_version(text, parts if of_release else parts[:2])
    if re.fullmatch(r"\d{4,5}", text):
        number = int(text)
        if number % 10 == 0 and number // 1000 >= 7:
            return make_version(text, (number // 1000, number % 1000 // 10))
    if match := _CUDA_TAG.fullmatch(text.lower()):
        parts = split_tag(match[1])
        if len(parts) == 2:
            return make_version(text, parts)
    if re.fullmatch(r"\d{1,2}", text):
        example = f"a major alone does not name a toolkit; write {text}.x with its minor"
    raise _version_error(name, text, example)


_LIBRARY = re.compile(
    r"v?(\d{1,3}(?:\.\d{1,4}){0,3})(?:\.post\d+)?(?:-[\w.~]*?\d)?(?:\+(?P<local>[\w.\-]+))?"
)


_MAJOR = re.compile(r"\d{1,2}")


def _library_parser(example: str) -> _Parser:
    def read(name: str, text: str) -> Version:
        stem, _, label = text.partition("+")
        if re.fullmatch(r"\d{4,6}", stem):
            # 90100 is 9.1.0, and 8907 of the older form is 8.9.7. Sources: cuDNN 9.0.0 Release
            # Notes, CUDNN_VERSION is major * 1000 + ... before 9 and major * 10000 + ... from 9 on;
            # NVIDIA/nccl src/nccl.h.in, NCCL_VERSION changed in the same way with 2.9.
            number = int(stem)
            scale = 1000 if number < 10000 else 10000
            parts = (number // scale, number % scale // 100, number % 100)
            return _make_library_version(text, parts, label)
        match = _LIBRARY.fullmatch(text)
        alone = name == "cudnn" and _MAJOR.fullmatch(stem)  # images and bug reports name no more
        if not match or ("." not in match[1] and not alone):
            raise _version_error(name, text, example)
        numbers = tuple(int(p) for p in match[1].split("."))
        return _make_library_version(text, numbers, match["local"] or "")

    return read


def _make_library_version(text: str, parts: tuple[int, ...], label: str) -> Version:
    """Return a version that compares by three parts: the fourth is a build number."""
    local = label.lower()
    cuda = cuda_of_label(local)
    if cuda and _LOCAL_CUDA.fullmatch(local):
        local = f"cu{''.join(map(str, cuda))}"  # cuda12.4 and cu124 are one build
    three = make_version(text, parts[:3], cuda=cuda, local=local)
    return Version(text, parts, three.key, cuda, local)


_PYTHON = re.compile(r"(?:[Pp]ython\s*)?(\d)\.(\d{1,2})(?:\.(\d{1,2}))?(?:(?:a|b|rc)\d+)?(t)?\+?")
_CPYTHON_TAG = re.compile(r"cp(\d)(\d{1,2})(t)?")


def _parse_python(name: str, text: str) -> Version:
    match = _PYTHON.fullmatch(text)
    if match:
        parts = tuple(int(p) for p in match.groups()[:3] if p is not None)
        return make_version(text, parts, local="t" if match[4] else "")
    if tag := _CPYTHON_TAG.fullmatch(text):
        return make_version(text, (int(tag[1]), int(tag[2])), local="t" if tag[3] else "")
    raise _version_error(name, text, "like 3.11, 3.11.7 or 3.13t")


_COMPILER = re.compile(r"(\d{1,3}(?:\.\d{1,4}){0,3})(?:-[\w.~+]+)?")


def _parse_compiler(name: str, text: str) -> Version:
    """Read ``14``, ``13.3.0`` or a distribution's ``13.3.0-6ubuntu2``."""
    match = _COMPILER.fullmatch(text)
    if not match:
        raise _version_error(name, text, "like 2.39" if name == "glibc" else "like 14 or 13.3.0")
    return make_version(text, tuple(int(part) for part in match[1].split(".")))


_MSVC = re.compile(r"(14|19)\.(\d{2})(?:\.(\d{1,5}))?(?:\.\d{1,5})?")
_MSC_VER = re.compile(r"19(\d{2})")


def _parse_msvc(name: str, text: str) -> Version:
    """Read the version that cl prints, the toolset of the same compiler, or ``_MSC_VER``.

    ``19.38``, ``14.38`` and ``1938`` are one compiler. Source: Microsoft, "Predefined macros".
    """
    if match := _MSVC.fullmatch(text):
        build = (int(match[3]),) if match[3] else ()
        return make_version(text, (19, int(match[2]), *build))
    if match := _MSC_VER.fullmatch(text):
        return make_version(text, (19, int(match[1])))
    year = " (a year is several compilers)" if re.fullmatch(r"20\d\d", text) else ""
    raise _version_error(name, text, f"the version that cl prints, like 19.38, or 14.38{year}")


_CXX = re.compile(r"(?:(?:c|gnu)\+\+)?(03|11|14|17|20|23|26)", re.IGNORECASE)


def _parse_cxx(name: str, text: str) -> Version:
    match = _CXX.fullmatch(text)
    if not match:
        raise _version_error(name, text, "one of 03, 11, 14, 17, 20, 23 and 26, like 17 or c++17")
    return make_version(text, (int(match[1]),))


_SIMPLE = re.compile(r"(?:v|b(?=\d+$))?(\d+(?:\.\d+)*)(?:\+([A-Za-z0-9.\-_]+))?")
"""A release as most are written; ``b9060`` is a build of llama.cpp, which has numbers alone."""
_LABELLED = re.compile(r"([^-+_]*\d)[-_]((?:cu|cuda|rocm)\d[\w.]*)")
"""A label behind another sign than ``+``, as tags of images have it: ``2.1.0-cu121``."""
_OF_TAG = re.compile(r"(?:-[a-z0-9]+)*-py3(?:-(?:igpu|min|sdk))*$|-gpu(?:-jupyter)?$")
"""What follows the release in tags of images: ``24.05-vllm-python-py3``, ``2.15.0-gpu``."""
_EPOCH = 10**12
"""Added to the first part for each epoch: no release of another epoch is equal, or near."""


def _parse_pep440(name: str, text: str) -> Version:
    if match := _SIMPLE.fullmatch(text):
        label = _normalise_label((match[2] or "").lower())
        if len(match[1]) > 60:
            raise _version_error(name, text, "like 2.4.1 or 2.4.1+cu121")
        parts = tuple(int(p) for p in match[1].split("."))
        return make_version(text, parts, cuda=cuda_of_label(label), local=label)
    if match := _LABELLED.fullmatch(text):
        return _parse_pep440(name, f"{match[1]}+{match[2]}")
    if (tag := _OF_TAG.sub("", text)) != text:
        return _parse_pep440(name, tag)
    from packaging.version import InvalidVersion
    from packaging.version import Version as Pep440

    try:
        parsed = Pep440(text.removeprefix("R"))  # R2024a of MATLAB
    except InvalidVersion:
        raise _version_error(name, text, "like 2.4.1 or 2.4.1+cu121") from None
    local = parsed.local or ""
    first, *others = parsed.release
    return make_version(
        text,
        (first + parsed.epoch * _EPOCH, *others),
        cuda=cuda_of_label(local),
        local=local,
        prerelease=parsed.is_prerelease,
        whole=str(parsed),
    )


_SPELT_CUDA = re.compile(r"cu[-_.]?(\d{2})[-_.]?(\d)")


def _normalise_label(label: str) -> str:
    """Return a label as PEP 440 compares it, ``acme-07`` as ``acme.7``; ``cu-121`` as ``cu121``."""
    if match := _SPELT_CUDA.fullmatch(label):
        return f"cu{match[1]}{match[2]}"
    parts = re.split(r"[-_.]", label)
    return ".".join(str(int(part)) if part.isdecimal() else part for part in parts)


_PARSERS: dict[Scheme, _Parser] = {
    "driver": _parse_driver,
    "cuda": _parse_cuda,
    "cudnn": _library_parser("like 9.1.0, 9.1.0.70, 90100 or 8907"),
    "nccl": _library_parser("like 2.21.5 or 22105"),
    "python": _parse_python,
    "pep440": _parse_pep440,
    "compiler": _parse_compiler,
    "msvc": _parse_msvc,
    "cxx": _parse_cxx,
}


_DIGITS = re.compile(r"(\d+)")


def natural_key(text: str) -> list[tuple[int, int | str]]:
    """Return a sort key: ``a9`` before ``a10``, ``535.54`` before ``535.104``, case ignored."""
    parts = _DIGITS.split(text.casefold())
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts if part]
