"""Image references, as Docker reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.discovery.registry.image_spec import is_loopback, parse_reference
from compatgate.errors import BadInput

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "whole", "host"),
    [
        ("ubuntu", "docker.io/library/ubuntu:latest", "registry-1.docker.io"),
        ("pytorch/pytorch:2.4.1", "docker.io/pytorch/pytorch:2.4.1", "registry-1.docker.io"),
        ("index.docker.io/a/b", "docker.io/a/b:latest", "registry-1.docker.io"),
        ("nvcr.io/nvidia/pytorch:25.10-py3", "nvcr.io/nvidia/pytorch:25.10-py3", "nvcr.io"),
        ("localhost/app", "localhost/app:latest", "localhost"),
        ("localhost:5000/app", "localhost:5000/app:latest", "localhost:5000"),
        ("[::1]:5000/app:1", "[::1]:5000/app:1", "[::1]:5000"),
        ("docker://ghcr.io/a/b:1", "ghcr.io/a/b:1", "ghcr.io"),
        (f"ghcr.io/a/b@{DIGEST}", f"ghcr.io/a/b@{DIGEST}", "ghcr.io"),
        (f"ghcr.io/a/b:1@{DIGEST}", f"ghcr.io/a/b:1@{DIGEST}", "ghcr.io"),
        ("team/app_one/b--c", "docker.io/team/app_one/b--c:latest", "registry-1.docker.io"),
    ],
)
def test_what_is_left_out_is_what_docker_takes(text: str, whole: str, host: str) -> None:
    reference = parse_reference(text)
    assert (str(reference), reference.host) == (whole, host)


def test_a_digest_decides_over_a_tag() -> None:
    assert parse_reference(f"a/b:1@{DIGEST}").locator == DIGEST
    assert parse_reference("a/b:1").locator == "1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "https://ghcr.io/a/b",
        "${IMAGE}",
        "{{ image }}",
        "a b",
        "Ubuntu",
        "a/B:1",
        "a:",
        "a:b:c",
        "a@sha256:12",
        "a@",
        "a//b",
        "/a",
        "a/",
        "host:99999/a",
        "host:0/a",
        "-host.example/a",
        "a:" + "t" * 129,
        "a" * 5000,
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_reference(text)
    assert caught.value.field == "image"


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        reference = parse_reference(text)
    except BadInput:
        return
    assert parse_reference(str(reference)) == reference


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.9.9.9", True),
        ("[::1]:5000", True),
        ("[::1]", True),
        ("localhost.example:5000", False),
        ("10.0.0.1:5000", False),
        ("registry.example", False),
    ],
)
def test_loopback_is_this_machine(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
