"""The pages by Flask's own client."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from flask.testing import FlaskClient
from ui_forms import post

from compatgate.gate.service import Gate
from compatgate.web.app import create_app
from compatgate.web.settings import Settings

Client = Callable[..., FlaskClient]


@pytest.fixture
def pages(stocked: Gate) -> Client:
    """Makes browsers of a gate with the example matrix; ``scopes`` sign in with a new token."""

    numbers = count(1)

    def make(*scopes: str, anonymous: tuple[str, ...] = ("read", "gate")) -> FlaskClient:
        app = create_app(stocked, Settings(frozenset(anonymous)))
        client = app.test_client()
        if scopes:
            name = f"{'-'.join(scopes)}-{next(numbers)}"
            secret = stocked.tokens.create(name, scopes, by="tester").secret
            post(client, "sign-in", token=secret)
        return client

    return make
