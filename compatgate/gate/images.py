"""Images that a question names: read from their registries by the gate itself.

Only registries on the operator's list are asked; this is what keeps a question from making the
service speak to hosts of the asker's choosing. An image elsewhere is a label, and the answer says
that it was not read.

A question waits for a reading no longer than the deadline. The reading itself goes on, so that
whoever asks again finds it done: layers of gigabytes take minutes, once for each digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.request import parse_request
from compatgate.discovery.image import ImageOptions, ImageReading, Reference, parse_reference
from compatgate.discovery.stack.stated import shown_wins
from compatgate.errors import BadInput
from compatgate.gate.deciding import asked_target
from compatgate.gate.reading import Readings
from compatgate.gate.registries import Place, allowed
from compatgate.gate.shown import Shown
from compatgate.gate.snapshot import Snapshot

SETTING = "compatgate serve --registry (COMPATGATE_REGISTRIES)"
DEADLINE_S = 10.0
_NOT_YET = {"open": ["the image is yet to be read"]}
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


class ImageSettings(Struct, frozen=True):
    """What the operator lets the gate read.

    Attributes:
        registries: that may be asked; none: no image is read.
        deadline_s: seconds that a question waits for its image.
        at_once: images that are read at the same time.
        waiting: questions that may wait for an image at the same time; the other threads stay
            free for questions without one.
        options: mirrors, TLS, credentials and cache, as `read_image` takes them.
    """

    registries: tuple[Place, ...] = ()
    deadline_s: float = DEADLINE_S
    at_once: int = 8
    waiting: int = 16
    options: ImageOptions = ImageOptions()


class Images:
    """Puts what an image shows into a question that names one.

    Args:
        settings: of the operator.
        overlays: the operator's fact files.
    """

    def __init__(self, settings: ImageSettings, overlays: Any = None) -> None:
        self._settings = settings
        hosts = frozenset(place.host for place in settings.registries)
        # Redirects and token services are the registry's choice: they lead to public addresses.
        options = replace(settings.options, registries=hosts, internal=False)
        self._readings = Readings(
            options, overlays, settings.deadline_s, settings.at_once, settings.waiting
        )

    def shown(self, body: Any, snapshot: Snapshot, wait_s: float | None = None) -> Shown:
        """A question with what its image shows.

        Args:
            body: of the question, as `compatgate.gate.deciding.decide` takes it.
            snapshot: knows the target, whose processor chooses from an index.
            wait_s: seconds to wait for the image, at most the operator's; None: those.

        Returns:
            The question as it was asked where it names no image; where the image is not to be
            read, with a remark that says so; else with the image's stack, which wins over what is
            stated, and with the digest that was read.

        Raises:
            BadInput: the question is malformed; or its image is not to be read, and no stack is
                stated.
            NotFound: there is no such target, or no such image.
            Unavailable: the registry does not answer, or refuses, or not in time.
            Damaged: the image is not what its digest says.
            TooLarge: it is a decompression bomb.
        """
        image = body.get("image") if isinstance(body, Mapping) else None
        if not isinstance(image, str) or not image:
            return Shown(body)
        stated = body.get("stack")
        name, why = self._to_be_read(image, stated is not None)
        if name is None:
            noted = [*_remarks(stated), why]
            known = isinstance(stated, Mapping)
            return Shown({**body, "stack": {**stated, "unread": noted}} if known else body)
        # Whatever is wrong with the question is said before any registry is asked.
        request = parse_request(
            {**body, "stack": _NOT_YET if stated is None else stated}, snapshot.facts.gpus
        )
        cpus: set[str] = {pool.cpu for pool in asked_target(request, snapshot).pools}
        cpu = "aarch64" if cpus == {"aarch64"} else "x86_64"
        reading = self._readings.read(name, _PLATFORMS[cpu], snapshot.facts, wait_s)
        shown = _of_platform(reading, cpus)
        stack = shown_wins(shown, stated or {}, "the image")
        body = {**body, "stack": stack, "image": reading.pinned}
        return Shown(body, read=True, alone=stack == shown)

    def _to_be_read(self, image: str, stated: bool) -> tuple[Reference | None, str]:
        """The image, or None and why it is not to be read.

        Raises:
            BadInput: it is not to be read, and no stack is stated.
        """
        try:
            name = parse_reference(image)
        except BadInput:
            if not stated:
                raise
            return None, "the image was not read: its name is no reference to a registry"
        if allowed(name, self._settings.registries):
            return name, ""
        where = f"images of {name.registry} are not read here"
        if stated:
            return None, f"the image was not read, the stack is as stated: {where}"
        names = ", ".join(map(str, self._settings.registries)) or "none"
        hint = f"the operator allows registries with {SETTING}, now {names}; or state the stack"
        raise BadInput(where, field="image", value=image, hint=hint)


def _remarks(stated: Any) -> list[str]:
    before = stated.get("unread") if isinstance(stated, Mapping) else None
    return before if isinstance(before, list) else []


def _of_platform(reading: ImageReading, cpus: set[str]) -> dict[str, Any]:
    """What an image shows; of an index, one image stands for one kind of processor only."""
    shown = reading.to_request()
    if reading.index and len(cpus) > 1:
        what = f"the image of {reading.platform} was read, the target has pools of {sorted(cpus)}"
        shown["open"] = [*shown.get("open", ()), f"{what}: ask for each pool"]
    return shown
