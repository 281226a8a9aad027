"""When the forward-compatibility package of an image is loaded: docs/decisions/007."""

from __future__ import annotations

import re
from collections.abc import Iterable

from compatgate.core.stack_values import CompatUse
from compatgate.discovery.observed import Observation
from compatgate.discovery.signals import COMPAT_USE

_FOLDER = re.compile(r"(?:/usr/local/cuda[^/]*|/opt/[^/]+)/compat(?P<lib>/lib)?/?")


def of_path(folders: Iterable[str], origin: str) -> list[Observation]:
    """What the folders of a library path say.

    ``/usr/local/cuda/compat`` is there always. ``compat/lib`` of NGC's images is a link that their
    start script makes where the package works, to ``lib.real``.

    Args:
        folders: of ``LD_LIBRARY_PATH``, or the lines of a file below ``/etc/ld.so.conf.d``.
        origin: of the path.
    """
    found = []
    for folder in folders:
        if match := _FOLDER.fullmatch(folder.strip()):
            use: CompatUse = "tried" if match["lib"] else "always"
            seen = Observation(COMPAT_USE, use, f"{origin}: {folder.strip()}", "derived")
            found.append(seen)
    return sorted(found, key=lambda seen: seen.version)[:1]  # "always" before "tried"
