"""What discovery reports: observations with their origin, pools, and where witnesses disagree."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Confidence = Literal["measured", "metadata", "derived"]
"""``measured``: the running driver or process says so; ``metadata``: a version file, a package's
metadata or a file name says so; ``derived``: concluded from something else."""

DRIVER_CUDA = "driver-cuda"
"""Component name of observations of the CUDA version that the driver reports."""


class Observation(Struct, frozen=True):
    """One version, as one witness reports it.

    Attributes:
        component: canonical name of a component, or ``driver-cuda``.
        version: as the witness writes it.
        origin: where it was seen: a file, a command, an environment variable.
    """

    component: str
    version: str
    origin: str
    confidence: Confidence = "measured"

    def to_json(self) -> dict[str, Any]:
        """``{"component", "version", "origin", "confidence"}``."""
        return {
            "component": self.component,
            "version": self.version,
            "origin": self.origin,
            "confidence": self.confidence,
        }


class Conflict(Struct, frozen=True):
    """Witnesses that disagree, and which of them decides.

    Attributes:
        component: what they disagree on.
        message: one sentence with both values.
        decided: the value that counts; None: undecided.
    """

    component: str
    message: str
    decided: str | None = None

    def to_json(self) -> dict[str, Any]:
        """``{"component", "message", "decided"}``."""
        return {"component": self.component, "message": self.message, "decided": self.decided}


class ObservedPool(Struct, frozen=True):
    """GPUs of one kind on one host.

    Attributes:
        name: short name for messages, ``a100-sxm4-80gb``.
        gpu: product as reported, with its MIG profile, in a form that `resolve_gpu` reads.
        driver: kernel driver; None where the witness does not say.
        devices: GPUs, or MIG slices, of this kind.
        nodes: how many nodes are so; None where one host was looked at.
    """

    name: str
    gpu: str
    driver: str | None = None
    os: str = "linux"
    cpu: str | None = None
    devices: int = 1
    nodes: int | None = None

    def to_body(self) -> dict[str, Any]:
        """The pool of a request; a property that is not known is left out."""
        body: dict[str, Any] = {"name": self.name, "gpu": self.gpu}
        body |= {"driver": self.driver, "os": self.os, "count": self.nodes}
        if self.cpu:
            body["cpu"] = self.cpu
        return {key: value for key, value in body.items() if value is not None}
