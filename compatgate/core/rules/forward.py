"""CG103: the forward-compatibility package."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.parts import FORWARD
from compatgate.core.rules.base import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    Candidate,
    Problem,
    rule,
)


@rule("CG103", "forward-compat", reads=FORWARD)
def forward_compat(case: Case) -> Answer:
    """The forward-compatibility package is in the stack and cannot be used here.

    ``cuda-compat`` brings a newer user-mode driver. It works on data-center GPUs (and select RTX
    products), on Linux, on the host driver branches that the package was published for (a list,
    not a floor), and never on a host driver that is newer than the package itself.

    It counts where it is loaded. ``cuda-compat-use`` says when that is: ``always`` (the library
    path leads to it, and so it is taken when nothing else is stated); ``newer``: NVIDIA's container
    runtime loads it where its driver branch is newer than the host's, as in ``nvidia/cuda``
    images; ``tried``: a start script loads it where it works, as in NGC's images. What is not
    loaded does no harm.

    Example: an image with ``cuda-compat`` 12.8 on a GeForce host stops with error 804.

    Fix: remove the package, or use a host driver that runs the toolkit by itself.

    Source: CUDA Compatibility guide, "Forward Compatibility"; NVIDIA/nvidia-container-toolkit: the
    ELF note of the shipped libcuda, and ``cudacompat.go``, which decides whether it is loaded.
    """
    forward, compat = case.forward, case.stack.cuda_compat
    if forward is None or compat is None or forward.aside:
        return NOT_APPLICABLE
    if forward.usable:
        table, gpu = case.facts.forward_compat, case.pool.gpu
        if gpu and gpu.segment in table.conditional_segments:
            return (
                Problem(
                    "warn",
                    "cuda-compat",
                    f"forward compatibility on {gpu.segment} products is supported for select "
                    f"NGC-Server-Ready SKUs only; whether {gpu.sku} is one is not published",
                    have=compat.text,
                    source=table.hardware,
                ),
            )
        return PASS
    return (
        Problem(
            "unknown" if forward.usable is None else "fail",
            "cuda-compat",
            f"cuda-compat {compat} is not usable here: {forward.reason}"
            if forward.usable is False
            else f"whether cuda-compat {compat} is usable here is not known: {forward.reason}",
            have=compat.text,
            need=forward.need or None,
            source=forward.source,
            candidates=lambda: _without_compat(case),
        ),
    )


def _without_compat(case: Case) -> Iterator[Candidate]:
    package = case.forward.package if case.forward else None
    own = case.facts.driver_branches.branches.get(package.driver_branch) if package else None
    if own and own.first and case.stack.compat_use == "newer":
        raised = changes.raise_driver(case, own.first)
        what = f"{raised.message}: the package is then left aside"
        yield Candidate(raised.set, what)
    yield Candidate({"cuda-compat": None}, "leave the cuda-compat package out of the image")
    if case.floor:
        floor = case.floor[0]
        yield Candidate(
            {"cuda-compat": None, "driver": f">={floor}"},
            f"leave the cuda-compat package out and raise the driver to {floor} or newer",
        )
