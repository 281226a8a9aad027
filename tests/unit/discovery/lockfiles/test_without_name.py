"""What comes through standard input has no name: the content says what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_packages import PACKAGES

from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile
from compatgate.errors import BadInput

FILES = Path(__file__).parent / "files"
LOCKS = sorted(path for path in FILES.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_lock_says_the_same_without_its_name(path):
    platform = Platform(python="3.11")
    named = read_lockfile(path.name, path.read_bytes(), known=PACKAGES, platform=platform)
    nameless = read_lockfile("standard input", path.read_bytes(), known=PACKAGES, platform=platform)
    assert nameless.format == named.format
    assert [(o.component, o.version) for o in nameless.observations] == [
        (o.component, o.version) for o in named.observations
    ]


@pytest.mark.parametrize("text", ["hello world\n", "torch\n", "{}\n", "a: b\n", "<xml/>\n"])
def test_a_text_that_pins_nothing_is_no_lock(text):
    with pytest.raises(BadInput, match="is not a lockfile in a known format"):
        read_lockfile("standard input", text.encode(), known=PACKAGES, platform=Platform())
