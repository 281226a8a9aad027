"""Package indexes: as pip and uv are set up, in JSON and HTML, with what they state of wheels."""

from __future__ import annotations

import hashlib

import pytest
from wheel_server import wheel_server

from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.discovery.registry.transport import Transport
from compatgate.discovery.wheels import index
from compatgate.discovery.wheels.index import (
    IndexFile,
    PackageIndex,
    choose_wheel,
    read_index_settings,
)
from compatgate.errors import BadInput, DamagedContent, NotFound, Unavailable


@pytest.fixture
def server():
    with wheel_server() as served:
        yield served


@pytest.fixture
def ask(server):
    with Deadline(20) as deadline, Transport(ImageOptions(), deadline) as transport:
        yield lambda *urls: PackageIndex(urls or [server.index], transport)


def name(version="1.0", tags="cp312-cp312-manylinux_2_28_x86_64") -> str:
    return f"my_pkg-{version}-{tags}.whl"


@pytest.mark.parametrize("html", [False, True])
def test_an_index_lists_wheels_with_address_and_digest(server, ask, html):
    server.html = html
    url = server.add(name(), b"content")
    server.add("my_pkg-1.0.tar.gz", b"source")
    (file,) = ask().wheels("My.Pkg", "1.0")
    assert (file.name, file.url) == (name(), url)
    assert file.sha256 == hashlib.sha256(b"content").hexdigest()
    assert file.metadata is None


def test_the_metadata_beside_a_wheel_is_compared_with_its_digest(server, ask):
    server.add(name(), b"content")
    server.metadata[name()] = b"Name: my-pkg\nVersion: 1.0\n"
    index = ask()
    (file,) = index.wheels("my-pkg", "1.0")
    assert index.metadata(file) == b"Name: my-pkg\nVersion: 1.0\n"
    server.digests[f"{name()}.metadata"] = "0" * 64
    (file,) = index.wheels("my-pkg", "1.0")
    with pytest.raises(DamagedContent, match="metadata has the SHA-256"):
        index.metadata(file)


def test_metadata_that_is_stated_and_not_there_is_none(server, ask):
    file = IndexFile(name(), server.address(name()), metadata="")
    assert ask().metadata(file) is None


def test_the_first_index_with_the_release_counts(server, ask, tmp_path):
    (tmp_path / "my-pkg").mkdir()
    page = '<a href="my_pkg-2.0-py3-none-any.whl#sha256=%s">x</a>' % ("a" * 64)
    (tmp_path / "my-pkg" / "index.html").write_text(page)
    server.add(name(), b"content")
    both = ask(server.index, tmp_path.as_uri())
    assert both.wheels("my-pkg", "1.0")[0].url.startswith("http:")
    (local,) = both.wheels("my-pkg", "2.0")
    assert local.url == (tmp_path / "my-pkg" / "my_pkg-2.0-py3-none-any.whl").as_uri()
    assert local.sha256 == "a" * 64


def test_a_version_without_label_means_the_only_labelled_build(server, ask):
    server.add(name("1.0+cu128"), b"content")
    assert ask().wheels("my-pkg", "1.0")[0].name == name("1.0+cu128")
    server.add(name("1.0+cu130"), b"content")
    with pytest.raises(BadInput, match=r"several builds: 1\.0\+cu128, 1\.0\+cu130"):
        ask().wheels("my-pkg", "1.0")
    assert ask().wheels("my-pkg", "1.0+cu130")[0].name == name("1.0+cu130")


def test_what_no_index_has_is_not_found(server, ask):
    server.add(name(), b"content")
    with pytest.raises(NotFound, match="no wheel of that version"):
        ask().wheels("my-pkg", "9.0")
    with pytest.raises(NotFound, match="no wheel of that package"):
        ask().wheels("other", "1.0")


def test_a_page_that_is_no_index_is_an_error_with_its_address(server, ask):
    server.page = lambda package: {"files": "nonsense"}  # type: ignore[method-assign]
    with pytest.raises(NotFound):
        ask().wheels("my-pkg", "1.0")
    server.page = lambda package: ["nonsense"]  # type: ignore[method-assign,assignment]
    with pytest.raises(Unavailable, match="not a package index"):
        ask().wheels("my-pkg", "1.0")


def test_credentials_go_to_the_index_and_its_files_and_into_no_message(server, ask):
    server.password = "Basic YW5uOnNlY3JldA=="
    server.add(name(), b"content")
    url = server.index.replace("http://", "http://ann:secret@")
    (file,) = ask(url).wheels("my-pkg", "1.0")
    assert file.headers == {"Authorization": server.password}
    assert "secret" not in file.url
    with pytest.raises(NotFound) as caught:
        ask(url).wheels("other", "1.0")
    assert "secret" not in caught.value.detail


def test_the_wheel_of_a_platform_is_chosen():
    names = [
        name(tags="cp311-cp311-manylinux_2_28_x86_64"),
        name(tags="cp312-cp312-manylinux_2_28_x86_64"),
        name(tags="cp312-cp312-manylinux_2_28_aarch64"),
        name(tags="cp313-cp313t-manylinux_2_28_x86_64"),
        name(tags="cp313-cp313-manylinux_2_28_x86_64"),
        name(tags="cp312-cp312-win_amd64"),
    ]
    files = [IndexFile(n, f"https://x.example/{n}") for n in names]

    def chosen(*place):
        return [names.index(file.name) for file in choose_wheel(files, Platform(*place))]

    assert chosen("linux", "x86_64", "3.12") == [1]
    assert chosen("linux", "aarch64", "3.12") == [2]
    assert chosen("windows", "x86_64", "3.12") == [5]
    assert chosen("linux", "x86_64", "3.15") == [4]  # the newest Python, without free threads
    assert chosen("windows", "aarch64", "3.12") == []


def test_indexes_are_those_that_pip_is_set_up_with(tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://mirror.example/simple/\n"
        "extra-index-url = https://one.example/simple\n  https://two.example/simple\n"
    )
    found = read_index_settings({}, [str(config)])
    assert found == tuple(f"https://{h}.example/simple" for h in ("mirror", "one", "two"))
    assert read_index_settings({"PIP_INDEX_URL": "https://env.example/s"}, [str(config)])[0] == (
        "https://env.example/s"
    )


def test_indexes_are_those_that_uv_is_set_up_with():
    variables = {"UV_DEFAULT_INDEX": "https://u.example/simple", "UV_INDEX": "pt=https://p.example"}
    assert read_index_settings(variables, []) == ("https://u.example/simple", "https://p.example")


def test_without_a_setting_it_is_the_package_index():
    (only,) = read_index_settings({}, [])
    assert only.endswith("/simple")


@pytest.mark.parametrize(
    ("page", "file", "listed"),
    [
        ("https://index.example/simple/x/", "http://files.example/", False),
        ("https://index.example/simple/x/", "https://files.example/", True),
        ("http://index.example/simple/x/", "https://files.example/", True),
        ("http://index.example/simple/x/", "file:///etc/", False),
        ("file:///srv/x/", "file:///srv/files/", True),
    ],
)
def test_a_page_leads_neither_out_of_tls_nor_into_the_readers_own_files(page, file, listed):
    found = list(index._listed_files([{"url": f"{file}{name()}"}], page, ""))
    assert bool(found) is listed
