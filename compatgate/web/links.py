"""Links to this service, for those who read its answers elsewhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flask import request

if TYPE_CHECKING:
    from compatgate.web.call import Service

_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:\d{1,5})?")


def base_url(service: Service) -> str:
    """Where people reach this service: as the operator says, else where it was asked."""
    if service.settings.public_url:
        return service.settings.public_url.rstrip("/")
    host = request.environ.get("HTTP_HOST", "")
    return f"{request.scheme}://{host}" if _HOST.fullmatch(host) else ""


def verdict_link(base: str, verdict_id: str) -> str:
    """A link to a verdict that stays, whatever shows verdicts (`compatgate.web.lasting`).

    Args:
        base: of `base_url`.
        verdict_id: ``vd_...``.
    """
    return f"{base}/v/{verdict_id}"
