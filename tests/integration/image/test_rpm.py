"""Images of distributions with rpm: which database they have decides nothing."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "unit" / "discovery" / "image" / "databases"


def database(name: str) -> bytes:
    return lzma.decompress((FOLDER / f"{name}.xz").read_bytes())


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("Packages", "var/lib/rpm/Packages"),
        ("rpmdb.sqlite", "usr/share/rpm/rpmdb.sqlite"),
    ],
)
def test_a_stack_that_only_an_rpm_database_shows_is_read(registry, read, layer, name, path) -> None:
    image = registry.push(layer({path: database(name), f"{path}.lock": b""}))
    found = read(image.reference)
    assert found.stack_body == {
        "cuda": "12.4.127",
        "cudnn": "9.1.0.70+cu12",
        "nccl": "2.21.5+cu124",
    }
    assert not found.open
    assert {o.origin.split(": ")[1] for o in found.observations} == {path}


def test_a_database_that_is_not_whole_leaves_the_stack_open(registry, read, layer) -> None:
    image = registry.push(layer({"var/lib/rpm/Packages": database("Packages")[:200_000]}))
    found = read(image.reference)
    assert "cudnn" not in found.stack_body
    assert any("var/lib/rpm/Packages was not read: it ends early" in said for said in found.open)


def test_a_database_of_suse_leaves_the_stack_open(registry, read, layer) -> None:
    path = "usr/lib/sysimage/rpm/Packages.db"
    image = registry.push(layer({path: b"RpmP" + bytes(5000)}))
    assert any(
        f"{path} was not read: it is in rpm's ndb" in said for said in read(image.reference).open
    )


def test_changes_that_are_only_in_the_log_of_a_database_leave_the_stack_open(
    registry, read, layer
) -> None:
    folder = "var/lib/rpm"
    image = registry.push(
        layer(
            {
                f"{folder}/rpmdb.sqlite": database("rpmdb.sqlite"),
                f"{folder}/rpmdb.sqlite-wal": b"7\x7f\x06\x82" + bytes(100),
            }
        )
    )
    found = read(image.reference)
    assert found.stack_body["cudnn"] == "9.1.0.70+cu12"
    assert any("holds changes of the package database" in said for said in found.open)
