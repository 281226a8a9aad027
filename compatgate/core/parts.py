"""The parts of a question that a fix can change, and what of it must then be asked again.

A value or a rule that looks at none of the parts that were changed is what it was before. Whatever
does not say what it looks at looks at everything.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Literal

from compatgate.core.components import COMPONENTS, is_name
from compatgate.core.stack import canonical_key
from compatgate.core.stack_values import SPECIAL

Part = Literal[
    "driver", "cuda-compat", "arch", "cuda", "cudnn", "nccl", "python", "builds", "packages"
]
Parts = frozenset[Part]

DRIVER: Parts = frozenset(("driver",))
FORWARD: Parts = frozenset(("cuda-compat", "driver"))
CUDA: Parts = frozenset(("cuda", "builds"))
"""The stack's CUDA is the stated one or the one that a framework brings."""
CODE: Parts = CUDA | {"arch"}
CUDNN: Parts = CUDA | {"cudnn"}
NCCL: Parts = CUDA | {"nccl"}
STACK_VERSIONS: Parts = CUDA | {"cudnn", "nccl", "python"}
RECORDS: Parts = CUDA | {"packages", "python"}
"""What says which wheel a package is."""
PACKAGES: Parts = STACK_VERSIONS | {"packages"}
"""What packages require are packages and components alike."""
VERSIONS: Parts = PACKAGES | DRIVER
NOTHING: Parts = frozenset()
EVERYTHING: Parts = VERSIONS | {"cuda-compat", "arch"}

_OF: dict[str, Parts] = {
    "driver": DRIVER,
    "cuda-compat": frozenset(("cuda-compat",)),
    "cuda-compat-use": frozenset(("cuda-compat",)),
    "arch": frozenset(("arch",)),
    "cuda": frozenset(("cuda",)),
    "cudnn": frozenset(("cudnn",)),
    "nccl": frozenset(("nccl",)),
    "python": frozenset(("python",)),
}


_NO_PACKAGES = frozenset(("gpu", "os", "cpu", *SPECIAL))
_ONE_PACKAGE: Parts = frozenset(("packages",))


def _of_builds(name: str, frameworks: Container[str]) -> Parts:
    if name in COMPONENTS:
        return CUDA
    if name in frameworks:
        return EVERYTHING
    return _ONE_PACKAGE if name not in _NO_PACKAGES and is_name(name) else EVERYTHING


def parts_of(keys: Iterable[str], frameworks: Container[str] = ()) -> Parts:
    """Return the parts that a change of these keys of ``set`` may change.

    A component that is not a part of its own is one of the ``builds``: what has published builds,
    or none that are known; it may bring another CUDA. A package brings none. A key that is not
    known (the pool's GPU, the image's requirements) may change anything.

    Args:
        keys: components, packages and others.
        frameworks: by name; one that is no component brings a CUDA all the same.
    """
    found: Parts = NOTHING
    for key in keys:
        name = canonical_key(key)
        found |= _OF.get(name) or _of_builds(name, frameworks)
    return found
