"""``compatgate inspect`` of something local: a library, a wheel or a folder."""

from __future__ import annotations

import os
import stat

from compatgate.core.facts import CudaArch
from compatgate.core.facts.packages import FILES_ARE_READ, Packages
from compatgate.discovery.folder import find_in_file, find_in_folder
from compatgate.discovery.stack import Findings, Inspection, conclude
from compatgate.discovery.wheel import find_in_wheel, is_wheel
from compatgate.errors import BadInput, NotFound

__all__ = ["find", "inspect_path"]


def inspect_path(
    path: str, facts: CudaArch | None = None, known: Packages = FILES_ARE_READ
) -> Inspection:
    """The stack in a shared library, object, archive, fatbinary, cubin, PTX file, wheel or folder.

    Args:
        path: of it.
        facts: where code runs, to compare the code of several distributions.
        known: what the facts say of packages.

    Raises:
        BadInput: it is none of these, or is damaged; ``field`` is the path.
        NotFound: there is no such file.
        Unavailable: an ELF file is met, and pyelftools is not installed.
    """
    return conclude(find(path, known, facts), facts)


def find(path: str, known: Packages = FILES_ARE_READ, facts: CudaArch | None = None) -> Findings:
    """What is in a file or folder; raises as `inspect_path`."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise NotFound("there is no such file or folder", field=path) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot be read: {error}", field=path) from None
    if stat.S_ISDIR(mode):
        return find_in_folder(path, known, facts)
    if not stat.S_ISREG(mode):
        raise BadInput("is neither a file nor a folder", field=path)
    return find_in_wheel(path) if is_wheel(path) else find_in_file(path)
