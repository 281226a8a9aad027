"""Whether a workload has an image to run in where none is under test."""

from __future__ import annotations

from compatgate.canary.workload import Workload
from compatgate.canary.workloads.dockerfile import is_whole


def brings_image(workload: Workload) -> bool:
    """Whether it names an image, or its ``Dockerfile`` starts from one without being told which.

    A folder without a readable ``Dockerfile`` is another mistake, and counts as one that does.
    """
    own = workload.image
    if own.reference:
        return True
    if own.context is None:
        return False
    if workload.folder is None:
        return True
    try:
        text = (workload.folder / own.context / "Dockerfile").read_text(errors="replace")
    except OSError:
        return True
    return is_whole(text)
