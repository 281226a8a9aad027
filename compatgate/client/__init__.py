"""Ask the gate's REST API with a typed client.

An operation (`operations`) makes a `Request` of its arguments, without I/O. The client sends the
request with httpx and retries it where that is safe. `answers` decodes the response or raises the
error. The client does not import the service; both share the `schemas` of each capability.
"""

from __future__ import annotations

from compatgate.client.answers import Answer
from compatgate.client.clients import Client, Event
from compatgate.client.settings import Retries

__all__ = ["Answer", "Client", "Event", "Retries"]
