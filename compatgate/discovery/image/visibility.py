"""What layers above hide of the layers below.

Source: opencontainers/image-spec ``layer.md``, "Representing changes" and "Whiteouts".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from compatgate.discovery.image.feed import Member
from compatgate.discovery.image.options import Limits
from compatgate.discovery.image.problems import too_large

_PREFIX = ".wh."
_OPAQUE = ".wh..wh..opq"
# A file with such a name stands in for no directory that would lead to something wanted; not to
# remember it keeps memory small where a layer has a million files.
_NEVER_DIRECTORIES = re.compile(
    r"\.(?:pyc?|pyi|h|hpp|cuh|c|cc|cpp|js|ts|map|json|txt|md|rst|html|css|png|svg|jpg|gz|xz|zip|"
    r"mo|po|a|o|la|pc|cmake|ya?ml|toml|csv|pem|p[lm]|rb|tcl|go|rs|java|class|jar|whl|exe|dll|ttf|"
    r"pdf|sh|xml|conf|list|md5sums|ipynb|so(?:\.[\d.]+)?)$"
)


class Visibility:
    """Layers are read from the top down; a path that a layer above replaced or removed is hidden.

    Everything that a layer says applies to the layers below it, not to itself.

    Attributes:
        full: more paths were met than are remembered; of the others nothing is known.
    """

    def __init__(self, limits: Limits) -> None:
        self.full = False
        self._limits = limits
        self._removed: set[str] = set()
        self._emptied: set[str] = set()
        self._replaced: set[int] = set()
        self._new_removed: set[str] = set()
        self._new_emptied: set[str] = set()
        self._new_replaced: set[int] = set()

    def whiteout(self, path: str) -> bool:
        """Take a member's path when it is a whiteout."""
        folder, _, name = path.rpartition("/")
        if not name.startswith(_PREFIX):
            return False
        if name == _OPAQUE:
            self._new_emptied.add(folder)
        elif not name.startswith(".wh..wh."):  # aufs keeps its own files under such names
            hidden = name.removeprefix(_PREFIX)
            self._new_removed.add(f"{folder}/{hidden}" if folder else hidden)
        if len(self._new_removed) + len(self._new_emptied) > self._limits.whiteouts:
            raise too_large(f"a layer has more than {self._limits.whiteouts} whiteouts")
        return True

    def take(self, member: Member, *, wanted: bool) -> None:
        """Take a member that is no whiteout: it hides what has its name below.

        A directory hides nothing, it merges with the one below.
        """
        plain = not wanted and member.kind in ("file", "hardlink")
        if member.kind == "dir" or (plain and _NEVER_DIRECTORIES.search(member.path)):
            return
        if len(self._replaced) + len(self._new_replaced) < self._limits.remembered:
            self._new_replaced.add(hash(member.path))
        else:
            self.full = True

    def visible(self, path: str) -> bool:
        """Whether no layer above this one hides the path."""
        if hash(path) in self._replaced or path in self._removed:
            return False
        return not any(
            folder in self._emptied or folder in self._removed or hash(folder) in self._replaced
            for folder in _folders(path)
        )

    def next_layer(self) -> None:
        """Go to the layer below."""
        self._removed |= self._new_removed
        self._emptied |= self._new_emptied
        self._replaced |= self._new_replaced
        self._new_removed, self._new_emptied, self._new_replaced = set(), set(), set()


def _folders(path: str) -> Iterator[str]:
    """The folders above a path, and the root."""
    at = path.rfind("/")
    while at > 0:
        yield path[:at]
        at = path.rfind("/", 0, at)
    yield ""
