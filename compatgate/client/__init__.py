"""A typed client of the gate's REST interface, sync (`Client`) and async (`AsyncClient`).

A request's way: an operation (`operations`: arguments to a `Request`, no I/O) -> a client, which
sends it with httpx and tries again where that does no harm -> `answers` (types) or `problems`
(errors). Nothing here imports the service; both share the `schemas` of each capability.
"""

from __future__ import annotations

from compatgate.client.answers import Answer
from compatgate.client.clients import AsyncClient, Client
from compatgate.client.settings import Retries
from compatgate.client.transport import Event

__all__ = ["Answer", "AsyncClient", "Client", "Event", "Retries"]
