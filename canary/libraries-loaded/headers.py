"""Read versions from the headers of CUDA libraries. Python 3.8 or newer.

Source: the macros of ``cuda_runtime_api.h``, ``cudnn_version.h`` and ``nccl.h``.
"""

import os
import re

_PARTS = {
    "cudnn": (
        ("cudnn_version.h", "cudnn.h"),
        ("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"),
    ),
    "nccl": (("nccl.h",), ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH")),
}
_MOST = 4 << 20


def version(component, library):
    """Return the version in the header that belongs to a library.

    Args:
        component: ``cuda``, ``cudnn`` or ``nccl``.
        library: path of the loaded file. Only headers of the same installation count: those in the
            ``include`` folder next to its folders.

    Returns:
        The version and the header's path; (None, None) if there is none.
    """
    names = ("cuda_runtime_api.h",) if component == "cuda" else _PARTS.get(component, ((),))[0]
    for folder in _folders(library):
        for name in names:
            path = os.path.join(folder, name)
            found = _stated(component, path)
            if found:
                return found, path
    return None, None


def _folders(library):
    """Return the ``include`` folders for ``.../lib64``, ``.../lib/x86_64-linux-gnu``..."""
    folder = os.path.dirname(os.path.realpath(library))
    for _ in range(3):
        folder = os.path.dirname(folder)
        if folder in ("", "/"):
            return
        yield os.path.join(folder, "include")


def _stated(component, path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST)
    except OSError:
        return None
    if component == "cuda":
        number = _macro(text, "CUDART_VERSION")
        return None if number is None else f"{number // 1000}.{number % 1000 // 10}"
    parts = [_macro(text, name) for name in _PARTS[component][1]]
    return None if None in parts else ".".join(map(str, parts))


def _macro(text, name):
    found = re.search(rf"^\s*#\s*define\s+{name}\s+(\d+)\b", text, re.MULTILINE)
    return int(found.group(1)) if found else None
