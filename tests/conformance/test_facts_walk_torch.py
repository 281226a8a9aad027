"""Every PyTorch release and build: CUDA, pins and Python."""

from __future__ import annotations

import re

import pytest

POOL = {"gpu": "7.5", "driver": "610.43.02"}
PYTHONS = [f"3.{minor}" for minor in range(5, 17)]
NO_DEFAULT = {"0.2.0", "0.3.0", "0.3.1", "0.4.0", "0.4.1", "1.8.2"}
"""Releases of which the facts hold no metadata of the package index, so no default build."""
NO_PYTHON = {"0.2.0", "0.3.0", "0.3.1", "1.8.2"}
"""Releases of which no source lists the Pythons."""


def releases(walk, name):
    return walk.framework(name)["releases"]


def toolkits(walk):
    return sorted({r["series"] for r in walk.read("cuda_driver")["releases"]}, key=walk.numbers)


def dotted(*parts):
    return ".".join(map(str, parts))


def pinned(walk, name, stack, component, pin, **pool):
    """Exact pins: the same passes, another major or older fails, newer warns."""
    rule = {"cudnn": "CG402", "nccl": "CG403"}[component]
    major, minor, patch = walk.numbers(pin)[:3]

    def expect(outcome, *version):
        walk.expect(outcome, rule, {**stack, component: dotted(*version)}, **{**POOL, **pool})

    expect("pass", major, minor, patch)
    expect("pass", *walk.numbers(pin))
    expect("fail", major + 1, 0, 0)
    expect("fail", major - 1, minor, patch)
    expect("warn", major, minor + 1, 0)
    expect("warn", major, minor, patch + 1)
    if patch:
        expect("fail", major, minor, patch - 1)
    if minor:
        expect("fail", major, minor - 1, 99)


def torch_builds(walk):
    """Release, build and whether it is on the install page."""
    for release in releases(walk, "torch"):
        for build in release["builds"]:
            yield release, build, build.get("listed", True)


def test_each_torch_build_is_published_under_its_label(walk):
    for release, build, listed in torch_builds(walk):
        stack = {"torch": f"{release['version']}+{build['label']}"}
        expected = "pass" if listed else "warn"
        walk.expect(expected, "CG401", {**stack, "cuda": build["cuda"]}, **POOL)
        walk.expect(expected, "CG401", stack, **POOL)
    walk.done(at_least=150)


def test_each_torch_release_has_builds_for_its_own_cudas_only(walk):
    for release in releases(walk, "torch"):
        page = {build["cuda"] for build in release["builds"] if build.get("listed", True)}
        index = {build["cuda"] for build in release["builds"]} - page
        if "documented" in release:  # the page has no 1.10.2
            assert page == set(release["documented"][0]["cuda"]), release["version"]
        for cuda in toolkits(walk):
            other = walk.without_build("torch", release["version"])
            expected = "pass" if cuda in page else "warn" if cuda in index else other
            stack = {"torch": release["version"], "cuda": cuda}
            walk.expect(expected, "CG401", stack, **POOL)
            walk.expect(expected, "CG401", {**stack, "cuda": f"{cuda}.1"}, **POOL)
            label = "cu" + cuda.replace(".", "")
            named = {"torch": f"{release['version']}+{label}"}
            walk.expect(expected, "CG401", named, **POOL)
    walk.done(at_least=1500)


@pytest.mark.parametrize("component", ["cudnn", "nccl"])
def test_each_torch_build_expects_its_own_pins(walk, component):
    for release, build, _ in torch_builds(walk):
        if pin := build.get("pins", {}).get(component, {}).get("spec", "").removeprefix("=="):
            stack = {"torch": f"{release['version']}+{build['label']}", "cuda": build["cuda"]}
            pinned(walk, "torch", stack, component, pin)
            chosen = {"torch": release["version"], "cuda": build["cuda"]}
            pinned(walk, "torch", chosen, component, pin)
    walk.done(at_least=300)


def test_the_default_torch_build_agrees_with_the_packages_own_requirements(walk):
    for release in releases(walk, "torch"):
        defaults = [b for b in release["builds"] if b.get("default")]
        if release["version"] in NO_DEFAULT:
            assert not defaults, release["version"]
            assert not any("requirements" in b or "pins" in b for b in release["builds"])
            continue
        (default,) = defaults
        groups = default.get("requirements", ())  # none where the wheel holds its libraries
        required = " ".join(package for group in groups for package in group["packages"])
        for component in ("cudnn", "nccl"):
            stated = re.search(rf"nvidia-{component}-cu\d+==([\d.]+)", required)
            pin = default.get("pins", {}).get(component, {}).get("spec")
            assert pin == (f"=={stated[1]}" if stated else None), release["version"]


def test_the_tags_of_the_torch_wheels_decide_about_python(walk):
    for release in releases(walk, "torch"):
        if release["version"] in NO_PYTHON:
            assert "python" not in release
            stack = {"torch": release["version"], "cuda": release["builds"][0]["cuda"]}
            walk.expect("not-applicable", "CG404", {**stack, "python": "3.8"}, **POOL)
            continue
        listed = release["python"]["wheels"]
        wheels = [python for python in listed if not python.endswith("t")]
        free = [python for python in listed if python.endswith("t")]
        for python in PYTHONS:
            stack = {"torch": release["version"], "cuda": release["builds"][0]["cuda"]}
            plain = "pass" if python in wheels else "fail"
            threaded = "pass" if f"{python}t" in free else "fail"
            walk.expect(plain, "CG404", {**stack, "python": python}, **POOL)
            walk.expect(plain, "CG404", {**stack, "python": f"{python}.4"}, **POOL)
            walk.expect(threaded, "CG404", {**stack, "python": f"{python}t"}, **POOL)
    walk.done(at_least=800)


def test_the_aarch64_wheels_of_torch_decide_on_aarch64(walk):
    for release in releases(walk, "torch"):
        wheels = release.get("python", {}).get("wheels_aarch64")
        if wheels is None:
            continue
        for python in [*PYTHONS, "3.13t", "3.14t"]:
            stack = {"torch": release["version"], "cuda": release["builds"][-1]["cuda"]}
            expected = "pass" if python in wheels else "fail"
            walk.expect(expected, "CG404", {**stack, "python": python}, cpu="aarch64", **POOL)
    walk.done(at_least=300)
