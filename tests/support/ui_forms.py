"""Sending forms as the pages would."""

from __future__ import annotations

from typing import Any

from flask.testing import FlaskClient


def form_token(client: FlaskClient) -> str:
    """What forms of this browser carry."""
    text = client.get("/ui/keys").text
    return text.partition('name="form_token" value="')[2].partition('"')[0]


def post(client: FlaskClient, path: str, **fields: Any):
    """Send a form as its page would."""
    fields = {"form_token": form_token(client), **fields}
    return client.post(f"/ui/{path}", data=fields)
