"""JSON is the verdict as REST answers it."""

from __future__ import annotations

import json
from typing import Any

from compatgate.cli.formats import render


def test_json_is_the_verdict_itself(denied: dict[str, Any]) -> None:
    assert json.loads(render("json", denied)) == denied
