"""Errors that only HTTP has."""

from __future__ import annotations

from compatgate.errors import BadInput, CompatgateError, Unavailable


class UnsupportedMedia(BadInput):
    """The body has a form that this route does not read."""

    status = 415
    slug = "unsupported-media-type"


class HttpError(CompatgateError):
    """What Flask itself refuses: no such route, a method that it has not."""

    def __init__(self, status: int, slug: str, problem: str, *, hint: str = "") -> None:
        super().__init__(problem, hint=hint)
        self.status = status
        self.slug = slug


class Busy(Unavailable):
    """Too many requests of this kind wait already; ask again in a moment."""

    retry_after_s = 1
