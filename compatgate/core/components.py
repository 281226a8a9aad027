"""Resolve names of the parts of a stack, and limit what a question may hold.

Components are a closed list: NVIDIA's tables name them, and each has its form of version. Every
other name is a package of the Python package index, known or not: the class of packages is open.
The limits are far above any real question, and small enough to decide within a moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from compatgate.core import vocabulary
from compatgate.errors import BadInput

MAX_KEYS = 256  # keys of a stack, and of ``set``; about thirty are known
MAX_ARCHITECTURES = 256  # architectures of a stack; builds for every GPU have about twenty
MAX_ALTERNATIVES = 256
"""Alternatives in all ``NVIDIA_REQUIRE_*`` expressions of an image; NVIDIA published up to 73."""
MAX_REQUIRE_LENGTH = 8192
"""Characters of all these expressions; the longest that NVIDIA published has 2,596."""
MAX_REMARKS = 1000  # sentences of ``open``, ``conflicts`` or ``unread``
MAX_LIBRARIES = 2000  # libraries in a package's record; vLLM has 8, flashinfer-cubin 40 groups
MAX_STACKS = 8
"""Alternatives of a stack: other installations in one image, other images of one index."""
MAX_NAME_LENGTH = 256  # characters of a component's, target's, pool's or GPU's name
MAX_VERSION_LENGTH = 256
MAX_COMMAND_LENGTH = 262_144
"""Characters of a command; a pod with a script in it has some ten thousand."""
MAX_IMAGE_LENGTH = 8192
"""Characters of an image; references have about 500 at most, and any label is accepted."""


def check_count(count: int, most: int, what: str, field: str | None = None) -> None:
    """Check that a question does not hold too many items of a kind."""
    if count > most:
        raise BadInput(
            f"too many {what}: {count}", field=field, value=count, hint=f"at most {most}"
        )


def check_length(text: str, most: int, field: str | None = None) -> None:
    """Check that a text is not too long."""
    if len(text) > most:
        what = f"too long: {len(text)} characters"
        raise BadInput(what, field=field, value=f"{text[:40]}...", hint=f"at most {most}")


Scheme = Literal["driver", "cuda", "cudnn", "nccl", "python", "pep440", "compiler", "msvc", "cxx"]
Kind = Literal["driver", "library", "framework", "runtime", "build", "package"]


class Component(Struct, frozen=True):
    """A versioned part of a stack."""

    name: str  # canonical name; frameworks carry their name on the package index
    scheme: Scheme  # how its versions are spelled and compared
    # a framework brings GPU code of its own, a library comes from NVIDIA, ``build`` is what a build
    # from source is made with, a ``package`` is any other distribution of the package index
    kind: Kind
    label: str  # the name that people write


COMPONENTS: dict[str, Component] = {row[0]: Component(*row) for row in vocabulary.COMPONENTS}
_ORDER = {name: index for index, name in enumerate(COMPONENTS)}


def sort_components(names: Iterable[str]) -> list[str]:
    """Sort names: components in canonical order, then packages by name."""
    return sorted(names, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))


def label_of(name: str) -> str:
    """Return the name that people write: ``PyTorch`` for ``torch``; a package's own name."""
    known = COMPONENTS.get(name)
    return known.label if known else name


def join_words(words: Sequence[str]) -> str:
    """Join words as a sentence lists them: ``CUDA, cuDNN and NCCL``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


@lru_cache(maxsize=1)
def component_pattern() -> re.Pattern[str]:
    """Return the pattern that finds a component's name in a text, before the name is resolved.

    Short aliases (``tf``) are left out: they are parts of too many words.
    """
    aliases = (alias for alias in _ALIASES if len(alias) >= _SHORTEST_TO_SWAP)
    shortest: list[str] = []
    for name in sorted({*COMPONENTS, *aliases}, key=lambda name: (len(name), name)):
        if not any(part in name for part in shortest):
            shortest.append(name)
    return re.compile("|".join(n.replace("-", r"[-_.\s]+") for n in shortest), re.IGNORECASE)


def is_framework(name: str) -> bool:
    """Tell whether a name is that of a component with published builds of its own."""
    known = COMPONENTS.get(name)
    return known is not None and known.kind == "framework"


FRAMEWORKS = frozenset(name for name in COMPONENTS if is_framework(name))
OF_BUILDS = frozenset(name for name, one in COMPONENTS.items() if one.kind == "build")
"""Compilers, the C library and the C++ standard of a build from source. They say nothing of what
runs: no evidence measures them, and no lock, SBOM or image states them."""
_ALIASES = vocabulary.ALIASES
# Package names that carry the CUDA major (or major and minor) of the build:
# nvidia-cudnn-cu12, cupy-cuda12x, tensorrt-cu12, libcudnn9-cuda-12, transformer-engine-cu12.
_SUFFIX = re.compile(r"(?P<base>.+?)-(?:cu|cuda-?)(?P<major>1[0-9]|9)(?:-?(?P<minor>\d)|x)?")
_SONAME = re.compile(rf"(?P<base>{'|'.join(vocabulary.LIBRARIES)})\d+(?:-dev)?")


class ComponentMatch(Struct, frozen=True):
    """A component, and the CUDA that its name states (``(12,)`` for ``...-cu12``)."""

    component: Component
    cuda: tuple[int, ...] | None = None


# PyPA, "Names and normalization": letters, digits, and single separators between them.
_PACKAGE = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_MAX_PACKAGE_NAME = 100
_FILE = re.compile(r"lib.+-so(?:-\d+)*")
_COMPAT = "cuda-compat"
_KEYS = (_COMPAT, "arch", "require", "disable-require")
"""Keys of a stack that are not versions; a package of nearly the same name is a typing error."""
_SHORTEST_TO_SWAP, _SHORTEST_TO_CUT = 4, 5
"""Letters of the shortest names that are taken for misspelt: ``vlm`` is a name of its own."""


def find_component(name: str) -> ComponentMatch | None:
    """Find the component that a name means, in any spelling; None for a package.

    Names are ``cudnn``, ``pytorch``, ``libcudnn9``, ``nvidia-cudnn-cu12``, ``cupy-cuda12x``.
    """
    return None if len(name) > MAX_NAME_LENGTH else _find_cached(name)


def canonical_name(name: str) -> str:
    """Return a component's canonical name; any other text stays as it is."""
    found = find_component(name)
    return found.component.name if found else name


@lru_cache(maxsize=4096)
def _find_cached(name: str) -> ComponentMatch | None:
    text = _normalise(name)
    if found := _lookup(text):
        return ComponentMatch(found)
    if match := _SUFFIX.fullmatch(text):
        if found := _lookup(_strip_soname(match["base"])):
            minor = (int(match["minor"]),) if match["minor"] else ()
            return ComponentMatch(found, (int(match["major"]), *minor))
    elif found := _lookup(_strip_soname(text)):
        return ComponentMatch(found)
    return None


def resolve_component(name: str) -> ComponentMatch:
    """Resolve a name: to a component, or to the package of that name on the package index."""
    if found := find_component(name):
        return found
    check_length(name, MAX_NAME_LENGTH, f"{name[:40]}...")
    return _resolve_package(name)


@lru_cache(maxsize=4096)
def _resolve_package(name: str) -> ComponentMatch:
    text = _normalise(name)
    spaced = len(name.split()) != 1
    if spaced or not is_package_name(text):
        problem = f"{name[:_MAX_PACKAGE_NAME]!r} is not the name of a component or package"
        if match := re.match(r"\s*([\w.-]+)\s*[<>=!~]", name):
            hint = f"state one version, like {match[1]}=2.8.0: a range leaves open what will run"
        else:
            hint = "a name has letters, digits and single hyphens, like torch or flash-attn"
        raise BadInput(problem, field=name, value=name, hint=hint)
    near = _COMPAT if text.startswith(f"{_COMPAT}-") else _misspellings().get(text)
    if near:
        problem = f"{name!r} is not a component"
        raise BadInput(problem, field=name, value=name, hint=f"did you mean {near}?")
    text = vocabulary.PACKAGE_ALIASES.get(text, text)
    return ComponentMatch(Component(text, "pep440", "package", text))


def is_package_name(text: str) -> bool:
    """Tell whether a normalised text can be the name of a package."""
    return bool(
        len(text) <= _MAX_PACKAGE_NAME and _PACKAGE.fullmatch(text) and not _FILE.match(text)
    )


_EXTRAS = re.compile(r"\s*\[(?!sm_|compute_)[a-z0-9][a-z0-9,._-]*\]")
"""Extras of a package, ``tensorflow[and-cuda]``; code in brackets belongs behind the version."""


def _normalise(name: str) -> str:
    text = name.strip().lower()
    if text.endswith("]"):
        text = _EXTRAS.sub("", text)
    return re.sub(r"[-_.\s]+", "-", text)


def _lookup(text: str) -> Component | None:
    return COMPONENTS.get(_ALIASES.get(text, text))


def _strip_soname(text: str) -> str:
    match = _SONAME.fullmatch(text)
    return match["base"] if match else text


@lru_cache(maxsize=1)
def _misspellings() -> dict[str, str]:
    """Map names with a letter missing, doubled or swapped, and plurals, to the name that was meant.

    Only these slips count: packages are often called like a component with something added
    (``torchx``, ``pytorch3d``).
    """
    found: dict[str, str] = {}
    for name in (*COMPONENTS, *_ALIASES, *_KEYS):
        if len(name) < _SHORTEST_TO_SWAP:
            continue
        cuts = range(len(name)) if len(name) >= _SHORTEST_TO_CUT else ()
        cut = [name[:at] + name[at + 1 :] for at in cuts]
        swapped = [
            name[:at] + name[at + 1] + name[at] + name[at + 2 :] for at in range(len(name) - 1)
        ]
        doubled = [name[:at] + name[at] + name[at:] for at in range(len(name))]
        slips = (*cut, *swapped, *doubled, f"{name}s")
        found |= dict.fromkeys(slips, _ALIASES.get(name, name))
    return found
