"""Name the parts of a question that rules read and fixes change."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Literal

from msgspec import Struct

from compatgate.core.components import COMPONENTS, OF_BUILDS, is_package_name
from compatgate.core.node import NODE_COMPONENTS
from compatgate.core.stack import SPECIAL_KEYS, canonical_key

Part = Literal[
    "driver",
    "cuda-compat",
    "arch",
    "cuda",
    "cudnn",
    "nccl",
    "python",
    "builds",
    "packages",
    "node",
    "jetson",
    "compilers",
    "needs",
]
Parts = frozenset[Part]
DRIVER: Parts = frozenset(("driver",))
FORWARD: Parts = frozenset(("cuda-compat", "driver"))
CUDA: Parts = frozenset(("cuda", "builds"))  # the stack's CUDA is stated, or a framework brings it
CODE: Parts = CUDA | {"arch"}
BUILD: Parts = frozenset(("cuda", "compilers"))
"""The parts of a build from source: the toolkit, compilers, C library and C++ standard."""
NEEDS: Parts = frozenset(("needs",))
CUDNN: Parts = CUDA | {"cudnn"}
NCCL: Parts = CUDA | {"nccl"}
STACK_VERSIONS: Parts = CUDA | {"cudnn", "nccl", "python"}
RECORDS: Parts = CUDA | {"packages", "python"}  # the parts that decide which wheel a package is
PACKAGES: Parts = STACK_VERSIONS | {"packages"}  # packages require other packages and components
VERSIONS: Parts = PACKAGES | DRIVER
NOTHING: Parts = frozenset()
NODE: Parts = frozenset(("node",))
"""The pool's platform, how its GPUs are shared, and the parts of its nodes."""
JETSON: Parts = frozenset(("jetson",))
"""The L4T release of a pool of Jetsons, which its driver may tell."""
EVERYTHING: Parts = VERSIONS | NODE | JETSON | BUILD | NEEDS | {"cuda-compat", "arch"}
OPTIONAL: Parts = NODE | JETSON | {"compilers"}
"""The parts that few questions have; their rules are asked only then."""
EVIDENCE: Parts = EVERYTHING - OPTIONAL
"""The parts that decide which evidence covers a stack: it may be bound to an image's content."""
_PARTS_OF_KEYS: dict[str, Parts] = {
    "driver": DRIVER,
    "cuda-compat": frozenset(("cuda-compat",)),
    "cuda-compat-use": frozenset(("cuda-compat",)),
    "arch": frozenset(("arch",)),
    "cuda": frozenset(("cuda",)),
    "cudnn": frozenset(("cudnn",)),
    "nccl": frozenset(("nccl",)),
    "python": frozenset(("python",)),
    **dict.fromkeys(("platform", "sharing", *NODE_COMPONENTS), NODE),
    "needs": NEEDS,
    **dict.fromkeys(OF_BUILDS, frozenset[Part](("compilers",))),
    **dict.fromkeys(("l4t", "jetpack"), NODE | JETSON | DRIVER),
}
_NO_PACKAGES = frozenset(("gpu", "os", "cpu", *SPECIAL_KEYS))
_ONE_PACKAGE: Parts = frozenset(("packages",))


def parts_of(keys: Iterable[str], frameworks: Container[str] = ()) -> Parts:
    """Return the parts that a change of these keys of ``set`` may change.

    A component that has no part of its own belongs to ``builds``: it may bring another CUDA. A
    package brings none. An unknown key (the pool's GPU, the image's requirements) may change
    everything. Frameworks bring a CUDA even if they are not components.
    """
    found: Parts = NOTHING
    for key in keys:
        name = canonical_key(key)
        if parts := _PARTS_OF_KEYS.get(name):
            found |= parts
        elif name in COMPONENTS:
            found |= CUDA
        elif name in frameworks or name in _NO_PACKAGES or not is_package_name(name):
            found |= EVERYTHING
        else:
            found |= _ONE_PACKAGE
    return found


class Candidate(Struct, frozen=True):
    """A change that may mend a problem; only an evaluated candidate becomes a fix.

    ``set`` has the form of `compatgate.core.rule.Fix`.
    """

    set: dict[str, Any]
    message: str
