"""Where a registry may send its reader."""

from __future__ import annotations

import socket
import threading

import pytest

from compatgate.discovery.registry import transport
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.discovery.registry.transport import AddressGuard, Transport
from compatgate.errors import Unavailable
from compatgate.service.gate.questions.images import parse_networks

REGISTRIES = frozenset({"registry.example", "127.0.0.1:5000"})


@pytest.fixture
def guard() -> AddressGuard:
    mirrors = {"registry.example": ("http://127.0.0.2:80/x",)}
    return AddressGuard(ImageOptions(internal=False, registries=REGISTRIES, mirrors=mirrors))


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
        "https://10.0.0.7/x",
        "https://172.16.0.7/x",
        "https://192.168.1.7/x",
        "https://100.64.0.7/x",
        "https://[fd00::7]/",
        "https://[fec0::7]/",
        "https://[::ffff:10.0.0.7]/",
        "https://[64:ff9b::10.0.0.7]/",
        "https://[2002:0a00:0007::1]/",
        "https://[::10.0.0.7]/",
        "http://198.18.0.7/",
        "http://224.0.0.7/",
        "http://240.0.0.7/",
        "http://255.255.255.255/",
        "http://192.0.0.8/",
        "http://192.88.99.1/",
        "http://203.0.113.9/",
        "https://[::ffff:0:10.0.0.7]/",
        "https://[64:ff9b:1::a00:7]/",
        "https://[2606:4700::5efe:10.0.0.7]/",
        "https://[2606:4700::200:5efe:a00:7]/",
        "https://[2001::1]/",
        "https://[2001:db8::1]/",
        "https://[3fff::1]/",
        "https://[5f00::1]/",
        "https://[100::1]/",
        "https://[ff02::1]/",
        "https://[fe80::1%25eth0]/",
    ],
)
def test_what_is_not_public_is_refused(guard, url):
    with pytest.raises(Unavailable, match="redirects to"):
        guard.check_name(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://blobs.example/x",
        "https://8.8.8.8/x",
        "https://[2606:4700::1111]/x",
        "https://[64:ff9b::8.8.8.8]/x",
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
        with pytest.raises(Unavailable, match=r"redirects to blobs\.example"):
            guard.check_peer("blobs.example", connection)


@pytest.mark.parametrize("number", ["2130706433", "0x7f000001", "127.1"])
def test_what_a_name_resolves_to_is_looked_at_before_it_is_connected_to(number):
    options = ImageOptions(internal=False, registries=REGISTRIES)
    with socket.create_server(("127.0.0.1", 0)) as server, Deadline(10) as deadline:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        with Transport(options, deadline) as transport, pytest.raises(Unavailable) as caught:
            transport.open(f"http://{number}:{port}/", {})
        assert f"redirects to {number}, which is not a public address" in caught.value.problem
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize(
    ("networks", "url", "allowed"),
    [
        ("10.20.0.0/16", "https://10.20.3.4/x", True),
        ("10.20.0.0/16", "https://[::ffff:10.20.3.4]/x", True),
        ("10.20.0.0/16", "https://10.21.3.4/x", False),
        ("10.20.0.0/16, fd00::/8", "https://[fd00::1]/x", True),
        ("127.0.0.0/8", "http://localhost:9/x", True),
        ("192.168.7.7", "https://192.168.7.8/x", False),
    ],
)
def test_a_network_that_the_operator_allows_is_not_refused(networks, url, allowed):
    given = parse_networks([networks], "--registry-network")
    guard = AddressGuard(ImageOptions(internal=False, registries=REGISTRIES, networks=given))
    if allowed:
        guard.check_name(url)
        return
    with pytest.raises(Unavailable, match="not a public address"):
        guard.check_name(url)


def test_without_others_choosing_the_references_nothing_is_refused():
    AddressGuard(ImageOptions()).check_name("http://localhost/")


def test_a_name_is_resolved_once_and_the_connection_goes_to_what_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that turns into another address between check and connection gains nothing."""
    resolved: list[str] = []

    def rebinding(host: str, port: int, *args: object, **more: object) -> list[object]:
        resolved.append(host)
        address = host if host.startswith("127.") else f"127.0.0.{min(len(resolved), 2)}"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    allowed = parse_networks(["127.0.0.1"], "--registry-network")
    options = ImageOptions(internal=False, registries=REGISTRIES, networks=allowed)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    with socket.create_server(("127.0.0.1", 0)) as server, Deadline(10) as deadline:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                heard.append(connection.recv(65536))
                connection.sendall(answer)

        heard: list[bytes] = []
        thread = threading.Thread(target=serve)
        thread.start()
        monkeypatch.setattr(socket, "getaddrinfo", rebinding)
        with Transport(options, deadline) as transport:
            assert transport.open(f"http://blobs.example:{port}/x", {}).read_all(10) == b"ok"
            thread.join()
            assert resolved.count("blobs.example") == 1
            with pytest.raises(Unavailable, match=r"redirects to blobs\.example"):
                transport.open(f"http://blobs.example:{port}/x", {})
    assert f"Host: blobs.example:{port}\r\n".encode() in heard[0]
    assert heard[0].startswith(b"GET /x HTTP/1.1")


def test_a_redirect_to_a_private_address_is_refused_whichever_range() -> None:
    """IANA's registries list them; Python's own table differs between its releases."""
    for network in transport._SPECIAL:
        text = str(network.network_address + (1 if network.num_addresses > 1 else 0))
        found = transport.read_address(text)
        assert found is not None
        assert not transport.is_public(found), network
