"""A typed client of the gate's REST interface, sync (`Client`) and async (`AsyncClient`).

A request's way: an operation (`operations`: arguments to a `Request`, no I/O) -> a client, which
sends it with httpx and tries again where that does no harm -> `answers` (types) or `problems`
(errors). Nothing here imports the service: what both know of the wire is in `compatgate.wire`.
"""

from __future__ import annotations

from compatgate.client.answers import Answer
from compatgate.client.asynchronous import AsyncClient
from compatgate.client.retries import Retries
from compatgate.client.streams import Event
from compatgate.client.sync import Client

__all__ = ["Answer", "AsyncClient", "Client", "Event", "Retries"]
