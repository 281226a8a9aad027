"""Errors that only HTTP has."""

from __future__ import annotations

from compatgate.errors import BadInput, CompatgateError, Conflict


class UnsupportedMedia(BadInput):
    """The body has a form that this route does not read."""

    status = 415
    slug = "unsupported-media-type"


class PreconditionFailed(Conflict):
    """``If-Match`` names another revision than the stored one."""

    status = 412
    slug = "precondition-failed"


class HttpError(CompatgateError):
    """What Flask itself refuses: no such route, a method that it has not."""

    def __init__(self, status: int, slug: str, problem: str, *, hint: str = "") -> None:
        super().__init__(problem, hint=hint)
        self.status = status
        self.slug = slug
