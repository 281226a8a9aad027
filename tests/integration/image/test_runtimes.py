"""What is read of a layer or an index is what a real containerd and skopeo make of it, or open."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from containerd import Containerd, Tree, layout_of
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_tricks import Entry, header, layer, long_name, pax

from compatgate.discovery.image.local import read_local_image
from compatgate.errors import CompatgateError, DamagedContent

A, B, C = (f"{folder}/torch/version.py" for folder in "abc")
_VERSION = re.compile(r"__version__ = '([\d.]+)'")
_NOTHING = ("no component or package", "no whole version")


def torch(number: int) -> bytes:
    return f"__version__ = '2.{number}.0'\n".encode()


def put(path: str, number: int, **more) -> Entry:
    return Entry(path, data=torch(number), **more)


def folder(*paths: str) -> list[Entry]:
    return [Entry(f"{path}/", "5") for path in paths]


def unpacked(tree: Tree) -> dict[str, str]:
    """Path to the version of each torch among the files."""
    return {
        path: match[1]
        for path, content in tree.items()
        if path.endswith("/torch/version.py") and isinstance(content, bytes)
        if (match := _VERSION.search(content.decode()))
    }


def reading(layers: Sequence[bytes], signals, place: Path) -> tuple[dict[str, str], list[str]]:
    """Path to the version of each torch that is read, and what is left open."""
    (place / "image.tar").write_bytes(layout_of(layers))
    try:
        found = read_local_image(f"oci-archive:{place / 'image.tar'}", signals=signals)
    except CompatgateError as error:
        return {}, [error.detail]
    seen = {
        one.origin.partition(": ")[2]: one.version
        for one in found.observations
        if one.component == "torch"
    }
    return seen, [text for text in found.open if not text.startswith(_NOTHING)]


def compare(containerd: Containerd, layers: Sequence[bytes], signals, place: Path) -> list[str]:
    """Check that the reading is what containerd unpacks or open; return what is open."""
    seen, doubts = reading(layers, signals, place)
    for snapshotter in ("native", "overlayfs"):
        tree = containerd.unpack(layers, snapshotter)
        assert tree is None or doubts or seen == unpacked(tree), snapshotter
    return doubts


@pytest.mark.parametrize(
    "layers",
    [
        [[put("x", 1, before=(pax(path=B), long_name(A)))]],
        [[put("x", 1, before=(long_name(A), pax(path=B)))]],
        [[put("x", 1, before=(pax(path=A), pax(path=B)))]],
        [[put(A, 1, before=(pax(path=B), pax(mtime="1")))]],
        [[put(A, 1, before=(pax(GNU__sparse__name=B),))]],
        [[put(A, 1, before=(pax(GNU__sparse__name=B, GNU__sparse__major="9"),))]],
        [[put(A, 1, before=(pax(path=""),))]],
        [[Entry("x", "g", pax(path=C)[1]), put(B, 2)]],
        [[put("x", 1, before=(pax(path=A),))], [put("y", 2, before=(long_name(B),))]],
        [[*folder("a", "a/torch"), put(A, 1)], [*folder("a"), Entry("a/.wh.torch")]],
        [[*folder("a", "a/torch"), put(A, 1)], [*folder("a"), Entry("a/.wh..wh..opq")]],
        [[*folder("a", "b"), put(A, 1)], [*folder("b"), Entry("a", "2", link="b")]],
    ],
)  # fmt: skip
def test_what_containerd_makes_of_a_layer_is_read(containerd, layers, signals, tmp_path) -> None:
    assert not compare(containerd, [layer(*one) for one in layers], signals, tmp_path)


@pytest.mark.parametrize(
    "layers",
    [
        [[put(A, 1), put(A, 2)]],
        [[put(A, 1), *folder(A)]],
        [[put(A, 1), Entry("a", "2", link="b")]],
        [[put(A, 1), Entry("a/.wh.torch")]],
        [[put(A, 1), Entry("a/.wh..wh..opq")]],
        [[put(A, 1), Entry("z", "2", link="a/torch"), put("z/version.py", 2)]],
        [[Entry("z", "2", link="a/torch"), put(A, 1)], [put("z/version.py", 2)]],
        [[*folder("a"), put(A, 1)], [Entry(".wh.a"), *folder("a"), put(B, 2)]],
        [[*folder("a"), put(A, 1)], [Entry("a", "2", link="b"), *folder("a"), put(B, 2)]],
        [[*folder("a"), put(A, 1)], [Entry("a", "g")]],
        [[*folder("a"), put(A, 1)], [Entry("x", "g", pax(path=A)[1]), put(B, 2)]],
        [[put(A, 1), Entry(B, "1", link=A)], [Entry("a/torch/.wh.version.py")]],
        [[put("x", 1), Entry(A, "1", link="x")]],
        [[Entry(A, data=b"1\n0\n16\n" + bytes(505) + torch(1), before=(pax(
            GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__name=B,
            GNU__sparse__realsize="16"),))]],
    ],
)  # fmt: skip
def test_where_a_layer_overwrites_its_own_files_the_image_is_open(
    containerd, layers, signals, tmp_path
) -> None:
    assert compare(containerd, [layer(*one) for one in layers], signals, tmp_path)


def test_a_size_after_nulls_hides_no_file(containerd, signals, tmp_path) -> None:
    hidden = put(A, 1).encode()
    block = header("x", "0", 0, octal=b"\0" + b"%010o" % len(hidden) + b"\0")
    archive = block + hidden + put(B, 2).encode() + bytes(1024)
    assert not compare(containerd, [archive], signals, tmp_path)
    assert reading([archive], signals, tmp_path)[0] == {B: "2.2.0"}


def test_a_folder_of_the_first_tar_has_no_content(containerd, signals, tmp_path) -> None:
    archive = header("a/", "\0", 1024) + put(A, 1).encode() + bytes(1024)
    assert not compare(containerd, [archive], signals, tmp_path)
    assert reading([archive], signals, tmp_path)[0] == {A: "2.1.0"}


@pytest.fixture(scope="module")
def comparison(containerd, signals, tmp_path_factory) -> Callable[..., list[str]]:
    """Compare what is read of layers with what containerd unpacks."""
    place = tmp_path_factory.mktemp("layers")
    return lambda layers: compare(containerd, [layer(*one) for one in layers], signals, place)


paths = st.sampled_from([A, B, C, "a/torch/x", "x", "b/x"])
folders = st.sampled_from(["a", "b", "a/torch", "b/torch", "c"])
hidden = st.sampled_from(
    [".wh.a", "a/.wh.torch", "a/torch/.wh.version.py", "a/.wh..wh..opq", ".wh..wh..opq",
     "b/.wh.torch", "b/torch/.wh..wh..opq", ".wh.x"]
)  # fmt: skip
extended = st.lists(
    st.one_of(
        paths.map(lambda path: pax(path=path)),
        paths.map(long_name),
        paths.map(lambda path: pax(GNU__sparse__name=path)),
        st.just(pax(mtime="1")),
        st.just(pax(path="")),
    ),
    max_size=2,
).map(tuple)
entries = st.one_of(
    st.builds(Entry, paths, data=st.integers(1, 99).map(torch), before=extended),
    st.builds(Entry, paths, data=st.integers(1, 99).map(torch)),
    st.builds(Entry, folders, st.just("5")),
    st.builds(Entry, folders, st.just("2"), link=st.sampled_from(["b", "a", "c", "../b", "x"])),
    st.builds(Entry, paths, st.just("1"), link=paths),
    st.builds(Entry, hidden),
    st.builds(Entry, paths, st.just("g"), data=paths.map(lambda path: pax(path=path)[1])),
)
layers_of = st.lists(st.lists(entries, min_size=1, max_size=5), min_size=1, max_size=3)


@settings(max_examples=60)
@given(layers_of)
def test_generated_layers_are_read_as_containerd_unpacks_them_or_open(comparison, layers) -> None:
    comparison(layers)


plain = st.dictionaries(paths, st.integers(1, 99), max_size=4)


@settings(max_examples=15)
@given(st.lists(plain, min_size=1, max_size=3), st.lists(hidden, max_size=2, unique=True))
def test_ordinary_layers_leave_nothing_open(comparison, layers, whiteouts) -> None:
    """Layers as engines write them: folders first, each path once, whiteouts in the last."""
    whiteouts = [path for path in whiteouts if path != ".wh..wh..opq"]
    made = [
        [*folder(*above(files)), *(put(path, n) for path, n in files.items())] for files in layers
    ]
    assert not comparison([*made, [*folder(*above(whiteouts)), *map(Entry, whiteouts)]])


def above(paths) -> list[str]:
    """The folders above paths, as a walk visits them."""
    return sorted({str(parent) for path in paths for parent in Path(path).parents} - {"."})


def test_the_content_that_a_config_names_runs_in_place_of_a_layer(
    containerd: Containerd, signals, tmp_path: Path
) -> None:
    """Where a node has unpacked such a content before, containerd does not look at the layer."""
    known, decoy = (layer(put(A, n)) for n in (1, 2))
    assert (
        containerd.import_image(
            layout_of([known]), "example.org/team/app:a", "--snapshotter", "native"
        ).returncode
        == 0
    )
    digest = f"sha256:{hashlib.sha256(known).hexdigest()}"
    archive = layout_of([decoy], diff_ids=[digest])
    again = containerd.import_image(archive, "example.org/team/app:b", "--snapshotter", "native")
    assert again.returncode == 0
    (tmp_path / "image.tar").write_bytes(archive)
    with pytest.raises(DamagedContent, match=f"the config states {digest}"):
        read_local_image(f"oci-archive:{tmp_path / 'image.tar'}", signals=signals)


def test_a_config_states_the_content_of_each_layer(signals, tmp_path: Path) -> None:
    one, two = (layer(put(path, 1)) for path in (A, B))
    digest = f"sha256:{hashlib.sha256(one).hexdigest()}"
    (tmp_path / "image.tar").write_bytes(layout_of([one, two], diff_ids=[digest]))
    with pytest.raises(DamagedContent, match="2 layers, its config states 1"):
        read_local_image(f"oci-archive:{tmp_path / 'image.tar'}", signals=signals)
