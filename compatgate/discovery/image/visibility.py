"""Tell which files of an image are visible, reading its layers from the top down.

A layer hides the paths that it replaces or removes in the layers below. Ordinary layers hold each
path once, and name each folder before its files. Others depend on the runtime, its snapshots and
the order of members: where that concerns a file that is read, the image is doubtful.

Sources: opencontainers/image-spec ``layer.md`` ("Representing changes" and "Whiteouts");
containerd/containerd ``archive/tar.go`` (native snapshots) and ``archive/tar_opts_linux.go``
(overlay).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from compatgate.discovery.image.tar import Member
from compatgate.discovery.registry.limits import Limits, too_large_error

_WHITEOUT = ".wh."
_OPAQUE_WHITEOUT = ".wh..wh..opq"
# A file with one of these endings never replaces a directory on a wanted path; forgetting it keeps
# memory small where a layer has a million files.
_FILE_ENDINGS = re.compile(
    r"\.(?:pyc?|pyi|h|hpp|cuh|c|cc|cpp|js|ts|map|json|txt|md|rst|html|css|png|svg|jpg|gz|xz|zip|"
    r"mo|po|a|o|la|pc|cmake|ya?ml|toml|csv|pem|p[lm]|rb|tcl|go|rs|java|class|jar|whl|exe|dll|ttf|"
    r"pdf|sh|xml|conf|list|md5sums|ipynb)$"
)
_NONE = "\0"
"""The folder of no member."""


class Visibility:
    """The paths visible when layers are read top down; once ``full``, further ones hide nothing."""

    def __init__(self, limits: Limits, doubt: Callable[[str], None] = lambda _: None) -> None:
        self.full = False
        self._limits = limits
        self._doubt = doubt
        self._removed: set[str] = set()
        self._emptied: set[str] = set()
        self._replaced: set[int] = set()
        self._disputed: set[str] = set()  # hidden, but not with each snapshotter
        self._implied: set[int] = set()  # folders that layers above name in paths alone
        self._begin_layer()

    def _begin_layer(self) -> None:
        self._new_removed: set[str] = set()
        self._new_emptied: set[str] = set()
        self._new_replaced: set[int] = set()
        self._new_implied: set[int] = set()
        self._files: set[str] = set()  # that count, of this layer
        self._above: set[str] = set()  # folders above those
        self._links: set[int] = set()
        self._named: dict[int, str] = {}  # depth to the last folder that has a member
        self._folder, self._linked = _NONE, False  # of the last member, with its slash

    def whiteout(self, path: str) -> bool:
        """Record a path if it is a whiteout; return whether it is one."""
        folder, _, name = path.rpartition("/")
        if not name.startswith(_WHITEOUT):
            return False
        self._check_folder(path)
        if name == _OPAQUE_WHITEOUT:
            self._new_emptied.add(folder)
            if not folder:  # overlay does not empty the root
                self._disputed.add(folder)
            if folder in self._above or (not folder and self._files):
                self._doubt(f"empties {folder or '/'} after files in it")
        elif not name.startswith(".wh..wh."):  # aufs uses these names for its own files
            hidden = name.removeprefix(_WHITEOUT)
            hidden = f"{folder}/{hidden}" if folder else hidden
            self._new_removed.add(hidden)
            if hidden in self._files or hidden in self._above:
                self._doubt(f"removes {hidden}, which it also has")
        self._check_whiteouts()
        return True

    def _check_whiteouts(self) -> None:
        count = len(self._new_removed) + len(self._new_emptied) + len(self._disputed)
        if count > self._limits.whiteouts:
            raise too_large_error(f"a layer has more than {self._limits.whiteouts} whiteouts")

    def take(self, member: Member, *, wanted: bool) -> None:
        """Record a member that is no whiteout: it hides the same path in the layers below.

        A directory hides nothing; it merges with the directory below.
        """
        path, kind = member.path, member.kind
        if self._linked or not path.startswith(self._folder) or "/" in path[len(self._folder) :]:
            self._check_folder(path)
        if self._files and (path in self._files or (path in self._above and kind != "dir")):
            self._doubt(f"has {path} twice")
        if kind == "global" or (
            kind == "dir" and (path in self._new_removed or hash(path) in self._new_replaced)
        ):
            self._disputed.add(path)
            self._check_whiteouts()
        if kind == "dir":
            self._links.discard(hash(path))
            self._named[path.count("/")] = path
            self._folder = _NONE
            return
        if kind == "symlink":
            if hash(path) in self._implied and not self._is_hidden(path):
                self._doubt(f"has the link {path}, and a layer above has files below it")
            self._links.add(hash(path))
            self._folder = _NONE
        if not wanted and kind in ("file", "hardlink") and _FILE_ENDINGS.search(path):
            return
        if self._has_room():
            self._new_replaced.add(hash(path))

    def count(self, path: str) -> None:
        """Record that a visible file of this layer counts."""
        self._files.add(path)
        folder = path.rpartition("/")[0]
        while folder and folder not in self._above:
            self._above.add(folder)
            folder = folder.rpartition("/")[0]

    def visible(self, path: str) -> bool:
        """Return whether no layer above this one hides the path."""
        hidden = self._is_hidden(path)
        if hidden and not self._disputed.isdisjoint((path, *_folders(path))):
            self._doubt(f"has {path}, which a layer above hides from some runtimes")
        return not hidden

    def _is_hidden(self, path: str) -> bool:
        if hash(path) in self._replaced or path in self._removed:
            return True
        return any(
            folder in self._emptied or folder in self._removed or hash(folder) in self._replaced
            for folder in _folders(path)
        )

    def _check_folder(self, path: str) -> None:
        """Check the folders of a member, which runtimes follow through links."""
        folder = path[: path.rfind("/") + 1]
        if folder != self._folder:
            self._folder = folder
            if not self._links and hash(folder[:-1]) in self._new_implied:
                self._linked = False  # the folders above were recorded with this one
            else:
                folders = list(_folders(path))[:-1]
                self._linked = bool(self._links) and any(
                    hash(one) in self._links for one in folders
                )
                for above in folders:
                    key = hash(above)
                    known = key in self._new_implied or self._named.get(above.count("/")) == above
                    if not known and self._has_room():
                        self._new_implied.add(key)
        if self._linked:
            self._doubt(f"has {path} below a symbolic link")

    def _has_room(self) -> bool:
        kept = (self._replaced, self._new_replaced, self._implied, self._new_implied, self._links)
        if sum(map(len, kept)) < self._limits.remembered:
            return True
        self.full = True
        return False

    def next_layer(self) -> None:
        """Start the layer below."""
        self._removed |= self._new_removed
        self._emptied |= self._new_emptied
        self._replaced |= self._new_replaced
        self._implied |= self._new_implied
        self._begin_layer()


def _folders(path: str) -> Iterator[str]:
    at = path.rfind("/")
    while at > 0:
        yield path[:at]
        at = path.rfind("/", 0, at)
    yield ""
