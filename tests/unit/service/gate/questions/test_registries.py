"""The list of registries that the gate may ask."""

from __future__ import annotations

import pytest

from compatgate.discovery.registry.image_spec import parse_reference
from compatgate.errors import BadInput
from compatgate.service.gate.questions.images import (
    is_allowed,
    parse_indexes,
    parse_networks,
    parse_places,
)


@pytest.mark.parametrize(
    ("places", "image", "may"),
    [
        ("registry.example", "registry.example/team/app:1", True),
        ("registry.example", "registry.example:5000/team/app:1", False),
        ("registry.example", "registry.example.evil.example/team/app:1", False),
        ("registry.example/team", "registry.example/team/app:1", True),
        ("registry.example/team/", "registry.example/team:1", True),
        ("registry.example/team", "registry.example/team2/app:1", False),
        ("registry.example/team", "registry.example/other/team/app", False),
        ("docker.io", "ubuntu:24.04", True),
        ("index.docker.io/pytorch", "pytorch/pytorch:2.4.1", True),
        ("docker.io/pytorch", "vllm/vllm-openai", False),
        ("localhost:5000, registry.example", "localhost:5000/app", True),
        ("[::1]:5000", "[::1]:5000/app", True),
        ("", "registry.example/app", False),
    ],
)
def test_a_registry_is_allowed_by_host_port_and_whole_parts_of_the_path(places, image, may):
    assert is_allowed(parse_reference(image), parse_places([places], "--registry")) is may


@pytest.mark.parametrize("text", ["*", "*.example", "registry", "http://r.example", "r.example/A"])
def test_what_is_no_registry_is_refused(text):
    with pytest.raises(BadInput) as caught:
        parse_places([text], "COMPATGATE_REGISTRIES")
    assert caught.value.field == "COMPATGATE_REGISTRIES"
    assert "HOST[:PORT][/PREFIX]" in caught.value.hint


@pytest.mark.parametrize("text", ["10.20.0.1/16", "10.20", "registry.example", "10.0.0.0/33"])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not a network") as caught:
        parse_networks([text], "--registry-network")
    assert (caught.value.field, caught.value.value) == ("--registry-network", text)


def test_indexes_are_urls_with_commas_or_spaces():
    texts = ["https://pypi.org/simple/, https://user:secret@index.example:8443/x", ""]
    assert parse_indexes(texts, "--index") == (
        "https://pypi.org/simple",
        "https://user:secret@index.example:8443/x",
    )


@pytest.mark.parametrize(
    "text",
    [
        "pypi.org",
        "file:///srv/wheels",
        "ftp://user:secret@index.example/simple",
        "https://user:secret@/simple",
        "https://user:secret@index.example:99999/",
        "https://user:secret@index.example/simple?x=1",
    ],
)
def test_what_is_no_index_is_refused_without_its_password(text):
    with pytest.raises(BadInput) as caught:
        parse_indexes([text], "COMPATGATE_INDEXES")
    assert caught.value.field == "COMPATGATE_INDEXES"
    assert "secret" not in f"{caught.value.detail} {caught.value.value}"
