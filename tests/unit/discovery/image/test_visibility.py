"""Which files of lower layers are seen, by the image specification's rules."""

from __future__ import annotations

import pytest

from compatgate.discovery.image.tar import Member
from compatgate.discovery.image.visibility import Visibility
from compatgate.discovery.registry.limits import Limits
from compatgate.errors import RequestTooLarge


def below(*paths: str, kind: str = "file") -> Visibility:
    """What a layer with these members leaves to be seen below it."""
    seen = Visibility(Limits())
    for path in paths:
        if not seen.whiteout(path):
            seen.take(Member(path, kind, 0, False), wanted=False)
    seen.next_layer()
    return seen


@pytest.mark.parametrize(
    ("above", "path", "visible"),
    [
        ("usr/lib/.wh.a", "usr/lib/a", False),
        ("usr/lib/.wh.a", "usr/lib/a/deep/file", False),
        ("usr/lib/.wh.a", "usr/lib/ab", True),
        (".wh.opt", "opt/x", False),
        ("usr/.wh..wh..opq", "usr/lib/a", False),
        ("usr/.wh..wh..opq", "usr", True),
        (".wh..wh..opq", "anything", False),
        ("usr/.wh..wh.plnk", "usr/lib", True),
        ("usr/lib", "usr/lib", False),
        ("usr/lib", "usr/lib/a", False),
        ("usr/libx", "usr/lib/a", True),
    ],
)
def test_layers_above_hide_what_they_remove_or_replace(above, path, visible) -> None:
    assert below(above).visible(path) is visible


def test_a_folder_merges_with_the_one_below() -> None:
    assert below("usr/lib", kind="dir").visible("usr/lib/a")


def test_a_layer_hides_nothing_of_its_own() -> None:
    seen = Visibility(Limits())
    seen.whiteout("usr/.wh.lib")
    seen.take(Member("usr/lib/new", "file", 0, False), wanted=True)
    assert seen.visible("usr/lib/new")
    seen.next_layer()
    assert not seen.visible("usr/lib/new")


def test_a_wanted_file_hides_the_one_below_whatever_its_name() -> None:
    seen = Visibility(Limits())
    seen.take(Member("usr/local/cuda/version.json", "file", 0, False), wanted=True)
    seen.next_layer()
    assert not seen.visible("usr/local/cuda/version.json")


def test_whiteouts_without_end_are_refused() -> None:
    seen = Visibility(Limits(whiteouts=10))
    for number in range(10):
        seen.whiteout(f"a/.wh.{number}")
    with pytest.raises(RequestTooLarge, match="more than 10 whiteouts"):
        seen.whiteout("a/.wh.10")


def test_more_paths_than_are_remembered_are_said() -> None:
    seen = Visibility(Limits(remembered=1))
    for name in ("a", "b"):
        seen.take(Member(name, "symlink", 0, False), wanted=False)
    assert seen.full
