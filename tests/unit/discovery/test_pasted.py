"""What somebody pastes is told by its content."""

from __future__ import annotations

import json

import pytest

from compatgate.catalog import read_source
from compatgate.core.facts import Facts
from compatgate.discovery import pasted as discovered
from compatgate.discovery.pasted import PastedText
from compatgate.errors import CompatgateError


def read_pasted(text: str, facts: Facts) -> PastedText:
    return discovered.read_pasted(text, facts, read_source("image_signals"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("registry.example/team/app:1.4", "an image reference"),
        ("docker://nvcr.io/nvidia/pytorch:24.01-py3", "an image reference"),
        ("ubuntu:22.04", "an image reference"),
        (f"localhost:5000/app@sha256:{'a' * 64}", "an image reference"),
        ("cuda=12.4, torch=2.4.1+cu124", "versions"),
        ("torch==2.4.1\n", "a lockfile"),
        ("# base\nARG TAG=1\nFROM registry.example/app:$TAG\nRUN make\n", "a Dockerfile"),
        ("from scratch\n", "a Dockerfile"),
        ('{"compatgate": "probe/v1", "pools": [], "stack": {}}', "a probe"),
    ],
)
def test_it_is_recognised(facts, text, kind):
    assert read_pasted(text, facts).kind == kind


def test_a_dockerfile_asks_for_its_image_and_leaves_the_rest_open(facts):
    pasted = read_pasted("ARG TAG=1\nFROM registry.example/app:$TAG\nRUN make\n", facts)
    assert pasted.image == "registry.example/app:1"
    assert "RUN (3) of pasted text bring is not known" in pasted.stack["open"][0]
    assert read_pasted("FROM scratch\n", facts).stack["open"]


def test_a_text_that_only_quotes_a_bill_of_materials_is_refused(facts):
    bill = {"bomFormat": "CycloneDX", "components": [{"type": "library", "name": "torch"}]}
    statement = {"_type": "https://in-toto.io/Statement/v1", "predicate": bill}
    with pytest.raises(CompatgateError, match="quotes a bill of materials"):
        read_pasted(json.dumps(statement), facts)


@pytest.mark.parametrize("text", ["", "  \n", "hello", "{}", "[1]", "<html></html>", "a\0b", "=1"])
def test_what_is_nothing_is_refused(facts, text):
    with pytest.raises(CompatgateError):
        read_pasted(text, facts)
