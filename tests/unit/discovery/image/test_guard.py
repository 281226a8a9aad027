"""Where a registry may send its reader."""

from __future__ import annotations

import socket

import pytest

from compatgate.discovery.image.guard import Guard
from compatgate.discovery.image.options import ImageOptions
from compatgate.errors import Unavailable

REGISTRIES = frozenset({"registry.example", "127.0.0.1:5000"})


@pytest.fixture
def guard() -> Guard:
    mirrors = {"registry.example": ("http://127.0.0.2:80/x",)}
    return Guard(ImageOptions(internal=False, registries=REGISTRIES, mirrors=mirrors))


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://localhost/",
        "http://127.1.2.3:8080/",
        "https://[::1]/",
        "http://[fe80::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://0.0.0.0/",
    ],
)
def test_this_machine_and_its_link_are_refused(guard, url):
    with pytest.raises(Unavailable, match="leads to"):
        guard.check_name(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://blobs.example/x",
        "https://10.0.0.7/x",
        "http://127.0.0.1:5000/v2/",
        "http://127.0.0.2/x/v2/",
    ],
)
def test_other_hosts_and_the_registry_itself_are_not(guard, url):
    guard.check_name(url)


def test_a_name_that_resolves_to_this_machine_is_refused_once_connected(guard):
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname()) as connection:
        guard.check_peer("registry.example", connection)
        with pytest.raises(Unavailable, match=r"leads to blobs\.example"):
            guard.check_peer("blobs.example", connection)


def test_without_others_choosing_the_references_nothing_is_refused():
    Guard(ImageOptions()).check_name("http://localhost/")
