"""Scopes as people write them."""

from __future__ import annotations

import pytest

from compatgate.errors import BadInput
from compatgate.kit.principal import Principal, anonymous_principal
from compatgate.service.access.tokens import parse_scopes


def test_scopes_are_separated_by_commas() -> None:
    assert parse_scopes(" read, gate ,read") == {"read", "gate"}


@pytest.mark.parametrize("text", ["", ",", " ", "write", "read,Gate", "read gate"])
def test_a_scope_that_does_not_exist_is_named(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_scopes(text)
    assert caught.value.field == "scopes"
    assert "bless" in caught.value.hint


def test_whoever_has_no_token_may_what_anonymous_may() -> None:
    nobody = anonymous_principal(["read", "gate"])
    assert nobody.may("gate")
    assert not nobody.may("bless")
    assert not Principal("x", frozenset()).may("read")
