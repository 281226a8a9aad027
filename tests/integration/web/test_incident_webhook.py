"""A server posts the incidents of its matrix, signed with the key of its file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from incident_receiver import web_receiver
from staging import until

from compatgate.kit.http.signatures import HEADER, Secret, verify

KEY = b"0123456789abcdef"


def test_a_server_posts_what_needs_attention(serve: Any, tmp_path: Path) -> None:
    (tmp_path / "incident.key").write_bytes(KEY)
    with web_receiver() as receiver:
        options = ("--incident-webhook", f"{receiver.url}/hook")
        serve(*options, "--incident-webhook-key", str(tmp_path / "incident.key"))
        until(lambda: receiver.posted, 30)
        request = receiver.posted[0]
        secret, header = Secret("incidents", KEY), request.headers[HEADER]
        assert verify([secret], header, time.time(), "POST", "/hook", request.body) == "incidents"
        assert json.loads(request.body)["event"] == "opened"
