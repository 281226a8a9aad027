"""Webhooks: questions in the forms of other systems, below ``/hooks``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from compatgate.web.hooks import kubernetes

if TYPE_CHECKING:
    from flask import Response

    from compatgate.web.call import Service
    from compatgate.web.route import Route

HOOKS: tuple[Route, ...] = (kubernetes.validate,)


def views(service: Service) -> tuple[tuple[Route, Callable[[], Response]], ...]:
    """Each hook with its view: hooks read requests and answer errors in their system's form."""
    return ((kubernetes.validate, kubernetes.make_view(service)),)
