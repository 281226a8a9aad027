"""Webhooks: questions in the forms of other systems, below ``/hooks``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from compatgate.web.hooks import deploying, driver_rollout, flagger, generic, kubernetes

if TYPE_CHECKING:
    from flask import Response

    from compatgate.web.call import Service
    from compatgate.web.route import Route

_DEPLOYING = (generic.ask_argo, flagger.ask, generic.ask, generic.poll, driver_rollout.ask)
HOOKS: tuple[Route, ...] = (kubernetes.validate, *(hook.route for hook in _DEPLOYING))


def views(service: Service) -> tuple[tuple[Route, Callable[[], Response]], ...]:
    """Each hook with its view: hooks read requests and answer errors in their system's form."""
    return (
        (kubernetes.validate, kubernetes.make_view(service)),
        *((hook.route, deploying.make_view(hook, service)) for hook in _DEPLOYING),
    )
