"""Frameworks and libraries, from pages of an index given as data."""

import pytest
from packaging.utils import parse_wheel_filename
from refresh import Bounds
from refresh.frameworks import FrameworkReader, recipe_of
from refresh.libraries import LibraryReader

from compatgate.discovery.wheels.archive import WheelIdentity
from compatgate.discovery.wheels.index import IndexFile

LINUX = "manylinux_2_28_x86_64"


class Pages:
    """An index of wheels by name, with what each requires."""

    def __init__(self, **requires):
        self._requires = requires
        self._files = []

    def add(self, *names, uploaded="2026-05-01T10:00:00Z"):
        self._files += [IndexFile(name, "", sha256="a" * 64, uploaded=uploaded) for name in names]
        return self

    def releases(self, package):
        found = {}
        for file in self._files:
            name, version, *_ = parse_wheel_filename(file.name)
            if name == package:
                found.setdefault(version, []).append(file)
        return found

    def identity(self, wheel):
        name, version, *_ = parse_wheel_filename(wheel.name)
        requires = self._requires.get(str(name).replace("-", "_"), ())
        return WheelIdentity(str(name), str(version), tuple(requires), ">=3.10")


def document(releases=(), **index):
    return {
        "component": "jax",
        "distributions": ["jax"],
        "index": index or {"builds": [{"name": "cu{cuda}", "accepts": "minor", "label": True}]},
        "releases": list(releases),
    }


def known(version, **fields):
    return {"version": version, "builds": [{"name": "cuda12"}], **fields}


def read(facts, pages, document, bounds=None):
    reader = FrameworkReader(document, recipe_of(document), pages, facts.packages)
    return reader.news(bounds or Bounds())


@pytest.mark.parametrize(
    ("accepts", "expected"),
    [("minor", "12.6.*"), ("major", "12.*"), ("range", ">=12.6,<13"), (">=12.0,<13", ">=12.0,<13")],
)
def test_a_build_accepts_what_its_recipe_says(facts, accepts, expected):
    pages = Pages(jax=["nvidia-cuda-runtime-cu12==12.6.77"]).add(f"jax-2.0-cp312-cp312-{LINUX}.whl")
    told = document(builds=[{"name": "cu{cuda}", "accepts": accepts, "built_with": True}])
    ((news,), left) = read(facts, pages, told)
    (build,) = news.entry["builds"]
    assert (build["name"], build["cuda"], build["accepts"]) == ("cu126", "12.6", expected)
    assert left == 0


def test_a_release_whose_metadata_names_no_cuda_is_reported_and_not_written(facts):
    pages = Pages().add(f"jax-2.0-cp312-cp312-{LINUX}.whl")
    ((news,), _) = read(facts, pages, document())
    assert (news.entry, news.facts) == (None, "")
    assert "names no CUDA" in news.what


def test_a_release_without_a_wheel_for_linux_is_reported_and_not_written(facts):
    pages = Pages().add("jax-2.0-cp312-cp312-win_amd64.whl")
    ((news,), _) = read(facts, pages, document())
    assert news.entry is None
    assert "without a wheel for Linux x86_64" in news.what


def test_a_build_that_a_known_release_gets_later_is_written_alone(facts):
    plugin = "jax_cuda13_plugin"
    pages = Pages(**{plugin: ["nvidia-nccl-cu13>=2.27"]}).add(
        "jax-1.0-py3-none-any.whl", f"{plugin}-1.0-cp312-cp312-{LINUX}.whl"
    )
    recipe = {"name": "cuda13", "package": "jax-cuda13-plugin", "accepts": "13.*"}
    ((news,), _) = read(facts, pages, document([known("1.0")], builds=[recipe]))
    assert (news.kind, news.package) == ("build", "jax-cuda13-plugin")
    assert list(news.entry) == ["version", "builds"]
    assert news.entry["builds"][0]["pins"] == {"nccl": {"spec": ">=2.27"}}


def test_pythons_that_a_known_release_gets_later_are_added_to_its_list(facts):
    pages = Pages().add(*(f"jax-1.0-cp3{n}-cp3{n}-{LINUX}.whl" for n in (12, 13)))
    told = document([known("1.0", python={"wheels": ["3.12"]})])
    ((news,), _) = read(facts, pages, told)
    assert (news.kind, news.what) == ("python", "wheels for Python 3.13")
    assert news.entry["python"]["wheels"] == ["3.12", "3.13"]


def test_a_range_of_pythons_grows_with_what_was_found_absent(facts):
    pages = Pages().add(*(f"jax-1.0-cp3{n}-cp3{n}-{LINUX}.whl" for n in (12, 13)))
    python = {"min": "3.12", "max": "3.12", "present": ["3.12"], "absent": ["3.13", "3.14"]}
    ((news,), _) = read(facts, pages, document([known("1.0", python=python)]))
    changed = {name: news.entry["python"][name] for name in ("max", "present", "absent")}
    assert changed == {"max": "3.13", "present": ["3.12", "3.13"], "absent": ["3.14"]}


def test_a_post_release_of_a_known_one_is_not_new(facts):
    pages = Pages().add(f"jax-1.0.post1-cp312-cp312-{LINUX}.whl")
    assert read(facts, pages, document([known("1.0")])) == ([], 0)


# --- libraries -----------------------------------------------------------------------------


def nccl(*packages):
    return {
        "distributions": ["nvidia-nccl-cu12", "nvidia-nccl-cu13"],
        "releases": [
            {
                "version": "2.27.7",
                "wheels": {label: "2.27.7" if label in packages else None for label in LABELS},
                "cuda_majors_of_wheels": [int(label[2:]) for label in packages],
            }
        ],
    }


LABELS = ("cu12", "cu13")


def wheel(major, version, platform=LINUX):
    return f"nvidia_nccl_cu{major}-{version}-py3-none-{platform}.whl"


def test_a_library_release_names_its_packages_and_majors():
    pages = Pages().add(wheel(12, "2.27.7"), wheel(13, "2.28.3"), wheel(12, "2.28.3"))
    ((news,), _) = LibraryReader("nccl", nccl("cu12"), pages).news(Bounds())
    assert news.entry["wheels"] == {"cu12": "2.28.3", "cu13": "2.28.3"}
    assert news.entry["cuda_majors_of_wheels"] == [12, 13]
    assert news.entry["integer"] == 22803


def test_a_package_for_another_cuda_is_added_to_a_known_release():
    pages = Pages().add(wheel(12, "2.27.7"), wheel(13, "2.27.7"))
    ((news,), _) = LibraryReader("nccl", nccl("cu12"), pages).news(Bounds())
    assert news.kind == "build"
    assert news.entry == {
        "version": "2.27.7",
        "wheels": {"cu12": "2.27.7", "cu13": "2.27.7"},
        "cuda_majors_of_wheels": [12, 13],
    }


def test_a_rebuild_of_a_library_is_the_release_that_it_rebuilds():
    pages = Pages().add(wheel(12, "2.27.7"), wheel(12, "2.27.7.98"))
    assert LibraryReader("nccl", nccl("cu12"), pages).news(Bounds()) == ([], 0)


def test_a_toolkit_is_reported_and_left_to_a_person():
    toolkits = {"distributions": ["cuda-toolkit"], "releases": [{"cuda": "13.0.0"}]}
    pages = Pages().add("cuda_toolkit-13.1.0-py2.py3-none-any.whl")
    ((news,), _) = LibraryReader("cuda_driver", toolkits, pages).news(Bounds())
    assert (news.entry, news.facts) == (None, "")
    assert "add it by hand" in news.what
