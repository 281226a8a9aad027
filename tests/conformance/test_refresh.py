"""A release that is left out of the shipped facts comes back from the stored pages of an index.

``tests/fixtures/index`` holds pages (PEP 691) and metadata (PEP 658) of the package index, cut to
the wheels for Linux of the releases below and to the headers that say what they require.
"""

from pathlib import Path
from typing import Any

import pytest
import refresh_facts
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from tables import read_table

from compatgate.catalog import read_source
from compatgate.cli.main import main

INDEX = Path(__file__).parents[1] / "fixtures" / "index"
FRAMEWORKS = [
    ("torch", "2.15.0", ["cu132"]),
    ("jax", "0.12.0.1", ["cuda12", "cuda13"]),
    ("tensorflow", "2.21.0", ["cuda12"]),
    ("onnxruntime-gpu", "1.31.1", ["pypi"]),
    ("vllm", "0.33.0", ["pypi"]),
    ("cupy", "14.2.0", ["cupy-cuda12x", "cupy-cuda13x"]),
    ("tensorrt", "11.4.0", ["cuda12", "cuda13"]),
]
"""Releases, and the builds of them that are on the index."""
NOT_TOLD = ("driver", "minimum_capability", "code", "code_aarch64")


LIBRARIES = [("cudnn", "9.28.0"), ("nccl", "2.32.3")]


@pytest.fixture(scope="module")
def refreshed(tmp_path_factory, schemas_asked_once):
    """Leave all of them out, refresh offline once, and give what was written for each."""
    without, out = tmp_path_factory.mktemp("without"), tmp_path_factory.mktemp("out")
    forms = [(name, version, {"component": name}) for name, version, _ in FRAMEWORKS]
    for name, version, head in [*forms, *((name, version, {}) for name, version in LIBRARIES)]:
        document = {"schema": f"facts/{'framework' if head else name}/v1", **head}
        document["releases"] = [{"version": version, "remove": True}]
        (without / f"{name}.yaml").write_text(yaml.safe_dump(document))
    names = [name for name, *_ in (*FRAMEWORKS, *LIBRARIES)]
    options = ["--offline", str(INDEX), "--out", str(out), "--metadata-only"]
    assert refresh_facts.main([*names, *options, "--facts", str(without)]) == 0
    assert main(["facts", "verify", "--facts", str(without), "--facts", str(out)]) == 0

    def written(facts: str, version: str) -> dict[str, Any]:
        document = read_table(out / f"{facts}.yaml")
        (found,) = [r for r in document["releases"] if r["version"] == version]
        return found

    return written


def release(facts: str, version: str) -> dict[str, Any]:
    (found,) = [r for r in read_source(facts)["releases"] if r["version"] == version]
    return found


def pythons(release: dict[str, Any]) -> tuple[str, ...]:
    """The lowest and the highest Python, and what the metadata requires, as far as it is known."""
    python = release.get("python") or {}
    listed = sorted({p.removesuffix("t") for p in python.get("wheels", ())}, key=Version)
    low, high = (listed[0], listed[-1]) if listed else (python.get("min"), python.get("max"))
    return low, high, python.get("requires")


def pins(part: dict[str, Any], like: dict[str, Any]) -> dict[str, set[tuple[str, Version]]]:
    """The pins of a part, cut to as many numbers as the facts state, without optional ones."""
    found = {}
    for name, pin in (part.get("pins") or {}).items():
        stated = (like.get("pins") or {}).get(name, pin)
        if not stated.get("optional"):
            places = max(len(Version(s.version.rstrip(".*")).release) for s in specs(stated))
            found[name] = {
                (s.operator, Version(".".join(s.version.split(".")[:places]))) for s in specs(pin)
            }
    return found


def specs(pin: dict[str, Any]) -> SpecifierSet:
    text = str(pin["spec"])
    return SpecifierSet(text if text[0] in "<>=" else f"=={text}")


def build(release: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in release["builds"] if one["name"] == name]
    return found


@pytest.mark.parametrize(("name", "version", "builds"), FRAMEWORKS, ids=lambda v: str(v))
def test_a_framework_comes_back_as_far_as_the_index_tells_it(name, version, builds, refreshed):
    shipped = release(f"frameworks/{name}", version)
    found = refreshed(f"frameworks/{name}", version)
    assert [one["name"] for one in found["builds"]] == builds
    assert pins(found, shipped) == pins(shipped, shipped)
    for told, known in zip(pythons(found), pythons(shipped), strict=True):
        assert known in (None, told)
    for one in builds:
        new, old = build(found, one), build(shipped, one)
        for field in ("label", "packages", "accepts"):
            assert new.get(field) == old.get(field), (one, field)
        for field in ("cuda", "default"):  # the index does not tell them of each framework
            assert new.get(field) in (None, old.get(field)), (one, field)
        assert pins(new, old) == pins(old, old), one
    assert found["confidence"] == "metadata"
    assert "on the package index" in found["source"]


@pytest.mark.parametrize(("name", "version", "builds"), FRAMEWORKS, ids=lambda v: str(v))
def test_what_the_index_does_not_tell_is_absent_and_named(name, version, builds, refreshed):
    found = refreshed(f"frameworks/{name}", version)
    assert not [field for one in (found, *found["builds"]) for field in NOT_TOLD if field in one]
    assert "minimum driver, minimum capability, GPU code" in found["note"]


def test_torch_names_its_wheels_and_requirements_as_the_facts_do(refreshed):
    shipped = release("frameworks/torch", "2.15.0")
    found = refreshed("frameworks/torch", "2.15.0")
    for field in ("wheels", "wheels_aarch64"):
        assert sorted(found["python"][field]) == sorted(shipped["python"][field])
    new, old = (build(one, "cu132") for one in (found, shipped))
    assert new["cuda"] == old["cuda"] == "13.2"
    (now,), (before,) = new["requirements"], old["requirements"]
    assert sorted(now["packages"]) == sorted(before["packages"])


def test_nccl_comes_back_equal(refreshed):
    assert refreshed("nccl", "2.32.3") == release("nccl", "2.32.3")


def test_cudnn_comes_back_equal_but_for_what_no_page_tells(refreshed):
    shipped = release("cudnn", "9.28.0")
    not_told = ("min_cc", "min_cc_confidence", "min_cc_source", "min_driver_linux_by_cuda_major")
    assert refreshed("cudnn", "9.28.0") == shipped | dict.fromkeys(not_told)


def test_nothing_is_new_where_nothing_is_left_out(capsys):
    names = ["torch", "jax", "tensorflow", "onnxruntime-gpu", "cupy", "tensorrt", "cudnn", "nccl"]
    assert refresh_facts.main([*names, "--offline", str(INDEX), "--check"]) == 0
    assert capsys.readouterr().out == "no news\n"
