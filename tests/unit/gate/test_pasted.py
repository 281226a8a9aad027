"""What somebody pastes is told by its content."""

from __future__ import annotations

import pytest

from compatgate.errors import CompatgateError
from compatgate.service.gate.ask_page import read_pasted


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("registry.example/team/app:1.4", "an image reference"),
        ("docker://nvcr.io/nvidia/pytorch:24.01-py3", "an image reference"),
        ("ubuntu:22.04", "an image reference"),
        (f"localhost:5000/app@sha256:{'a' * 64}", "an image reference"),
        ("cuda=12.4, torch=2.4.1+cu124", "versions"),
        ("torch==2.4.1\n", "a lockfile"),
        ('{"compatgate": "probe/v1", "pools": [], "stack": {}}', "a probe"),
    ],
)
def test_it_is_recognised(facts, text, kind):
    assert read_pasted(text, facts).kind == kind


@pytest.mark.parametrize("text", ["", "  \n", "hello", "{}", "[1]", "<html></html>", "a\0b", "=1"])
def test_what_is_nothing_is_refused(facts, text):
    with pytest.raises(CompatgateError):
        read_pasted(text, facts)
