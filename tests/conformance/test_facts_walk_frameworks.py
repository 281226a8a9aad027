"""TensorFlow, JAX, ONNX Runtime, CuPy, TensorRT, vLLM: CUDA, pins, Python, GPU and driver."""

from __future__ import annotations

import re

import pytest
from test_facts_walk_wheels import runs

POOL = {"gpu": "7.5", "driver": "610.43.02"}
CUDA = {9: "9.0", 10: "10.2", 11: "11.8", 12: "12.9", 13: "13.0"}
"""A toolkit of each major."""
PYTHONS = [f"3.{minor}" for minor in range(6, 17)]


def releases(walk, name):
    return walk.framework(name)["releases"]


def major(build):
    """The CUDA major of a build."""
    return int(re.search(r"\d+", build["accepts"])[0])


def floor(build):
    """The lowest CUDA that a build accepts."""
    return re.search(r"\d+(\.\d+)?", build["accepts"])[0]


def accepts(walk, build, cuda):
    """Tell whether a build works with a CUDA: of its major, of its series, or from a minor on."""
    number, low = walk.numbers(cuda)[:2], walk.numbers(floor(build))
    if build["accepts"].startswith(">="):
        below = bound(build["accepts"], "<")
        return number[0] == low[0] and number >= low and (not below or number < walk.numbers(below))
    return number[: len(low)] == low


def spec(build, component):
    """What a build pins of a component, as it is written."""
    return build.get("pins", {}).get(component, {}).get("spec")


def lowest(release, build):
    """The lowest capability that is published for a build."""
    stated = build.get("minimum_capability") or release.get("minimum_capability")
    return stated and stated["value"]


def toolkits(walk):
    return sorted({r["series"] for r in walk.read("cuda_driver")["releases"]}, key=walk.numbers)


def dotted(*parts):
    return ".".join(map(str, parts))


def pythons(walk, name, stack, release):
    """What has a wheel passes, what has none fails; a range that is only concluded never denies.

    An end of a range that is not published is open.
    """
    python = release["python"]
    low, high = python.get("min"), python.get("max")
    told = python.get("confidence", release["confidence"])
    denied = "unknown" if told == "derived" else "fail"
    for version in PYTHONS:
        number = walk.numbers(version)
        out = (low and number < walk.numbers(low)) or (high and number > walk.numbers(high))
        if wheels := python.get("wheels"):
            out = version not in wheels
        expected = denied if out else "pass"
        walk.expect(expected, "CG404", {**stack, "python": version}, **POOL)


def test_each_tensorflow_release_has_one_cuda_build(walk):
    for release in releases(walk, "tensorflow"):
        (build,) = release["builds"]
        for cuda in toolkits(walk):
            fits = accepts(walk, build, cuda)
            stack = {"tensorflow": release["version"], "cuda": cuda}
            other = walk.without_build("tensorflow", release["version"])
            walk.expect("pass" if fits else other, "CG401", stack, **POOL)
            windows = ("pass" if fits else other) if "windows" in release["os"] else "fail"
            walk.expect(windows, "CG401", stack, os="windows", gpu="7.5", driver="576.02")
    walk.done(at_least=800)


def test_each_tensorflow_release_compares_cudnn_by_major_and_minor(walk):
    for release in releases(walk, "tensorflow"):
        (build,) = release["builds"]
        tested = bound(spec(build, "cudnn"))
        first, minor = (*walk.numbers(tested), 0)[:2]
        stack = {"tensorflow": release["version"], "cuda": build["cuda"]}
        table = [("pass", (first, minor, 0)), ("pass", (first, minor, 9)),
                 ("pass", (first, minor + 1, 0)), ("fail", (first + 1, 0, 0)),
                 ("fail", (first - 1, 9, 9))]  # fmt: skip
        if minor:
            table.append(("fail", (first, minor - 1, 9)))
        for expected, version in table:
            walk.expect(expected, "CG402", {**stack, "cudnn": dotted(*version)}, **POOL)
    walk.done(at_least=100)


def test_each_tensorflow_release_is_for_its_tested_pythons(walk):
    for release in releases(walk, "tensorflow"):
        if "python" not in release:
            continue
        stack = {"tensorflow": release["version"], "cuda": release["builds"][0]["cuda"]}
        pythons(walk, "tensorflow", stack, release)
    walk.done(at_least=200)


def test_the_code_of_each_tensorflow_wheel_begins_at_its_lowest_capability(walk):
    for release in releases(walk, "tensorflow"):
        (build,) = release["builds"]
        least = lowest(release, build)
        if least and "code" in build:
            assert min(build["code"]["sass"], key=walk.numbers) == least


def lacks_code(walk, build, version, device):
    """Tell whether a plugin of a build was measured to have no code for a GPU (x86_64)."""
    document = walk.read("cuda_arch_support")
    for record in (r for name in build.get("packages", ()) for r in walk.facts.records(name)):
        if record.version == version and "x86_64" in record.wheel:
            for library in (one for one in record.libraries if one.carries_code):
                sass, ptx = (
                    [f"{name[:-1]}.{name[-1]}" for name in (n.partition("_")[2] for n in names)]
                    for names in (library.sass, library.ptx)
                )
                if not runs(walk, document, sass, ptx, device):
                    return True
    return False


def has_own_code(walk, build, version, device):
    """Tell whether all plugins of a build were measured to have machine code for just this GPU."""
    name = f"sm_{device.replace('.', '')}"
    found = [
        [r for r in walk.facts.records(plugin) if r.version == version and "x86_64" in r.wheel]
        for plugin in build.get("packages", ())
    ]
    libraries = [one for records in found for r in records for one in r.libraries if one.sass]
    return bool(found) and all(found) and all(name in one.sass for one in libraries)


def floor_of_capability(walk, stack, lowest, release, build, *, pinned=False):
    """A GPU below the minimum fails; one that came with the newest build's toolkit is open.

    Where the wheel was measured, its record decides (CG411), and CG405 has nothing to add; the
    records of plugins (JAX) deny, and prove what they have machine code for.
    """
    (version,) = (text for name, text in stack.items() if name != "cuda")
    measured = {r.version for name in stack for r in walk.facts.records(name)} & {*stack.values()}
    facts = walk.read("cuda_arch_support")
    toolkits_of = [
        walk.numbers(one.get("cuda") or f"{major(one)}.0")
        for one in (build, *release["builds"])
        if one.get("listed", True)
    ]
    built, newest = toolkits_of[0], max(toolkits_of)
    for known in facts["compute_capabilities"]:
        device = known["compute_capability"]
        enough = walk.numbers(device) >= walk.numbers(lowest)
        first = walk.numbers(known["first_toolkit"])
        existed = first <= built and first < newest
        existed = existed and device not in facts["tegra"]["capabilities"]
        existed = existed or has_own_code(walk, build, version, device)
        at = {"gpu": device, "driver": "580.65.06", "cpu": "x86_64"}
        denied = not enough or lacks_code(walk, build, version, device)
        if denied and enough and device in ("10.1", "11.0"):
            continue  # one number for Thor or the other: reports differ
        open_ = "unknown|warn"  # the measured wheels of the releases around may run there
        expected = "fail" if denied else "pass" if existed or measured else open_
        if pinned and walk.numbers(device) >= (10, 0):
            expected += "|fail"  # the torch that it pins is known, and may have no code for it
        walk.expect(expected, "CG405", stack, **at)


def jax_builds(walk, *, labelled=False):
    """Yield the builds whose CUDA or plugin the stack states, or those that only a label names."""
    for release in releases(walk, "jax"):
        for build in release["builds"]:
            if ("label" in build) == labelled:
                yield release, build


def bound(text, operator=">="):
    found = re.search(rf"{operator}\s*([\d.]+)", text or "")
    return found[1] if found else None


def test_each_jax_release_has_the_builds_that_can_be_installed(walk):
    for release in releases(walk, "jax"):
        published = {major(build): build for build in release["builds"] if "label" not in build}
        if not published:
            continue
        for cuda in toolkits(walk):
            number = walk.numbers(cuda)
            build = published.get(number[0])
            fits = build and number >= walk.numbers(floor(build))
            expected = "pass" if fits else walk.without_build("jax", release["version"])
            stack = {"jax": release["version"], "cuda": cuda}
            walk.expect(expected, "CG401", stack, **POOL)
    walk.done(at_least=800)


@pytest.mark.parametrize(("component", "rule"), [("cudnn", "CG402"), ("nccl", "CG403")])
def test_each_jax_build_asks_for_its_plugins_pins(walk, component, rule):
    for release, build in jax_builds(walk):
        pin = spec(build, component)
        low = walk.numbers(bound(pin) or bound(pin, "==") or "0")[:3] if pin else None
        if low is None:
            continue
        low = (*low, 0, 0)[:3]
        stack = {"jax": release["version"], "cuda": floor(build)}
        walk.expect("pass", rule, {**stack, component: dotted(*low)}, **POOL)
        above = "warn" if "==" in pin else "pass"
        walk.expect(above, rule, {**stack, component: dotted(low[0], low[1] + 1, 0)}, **POOL)
        if low[1]:
            older = dotted(low[0], low[1] - 1, 99 if low[1] > 1 else 9)
            walk.expect("fail", rule, {**stack, component: older}, **POOL)
        walk.expect("fail", rule, {**stack, component: dotted(low[0] + 1, 0, 0)}, **POOL)
        walk.expect("fail", rule, {**stack, component: dotted(low[0] - 1, 9, 9)}, **POOL)
    walk.done(at_least=100)


@pytest.mark.parametrize("component", ["cudnn", "nccl"])
def test_each_jax_pin_is_what_the_plugins_metadata_requires(walk, component):
    for release, build in jax_builds(walk):
        required = " ".join(build["requirements"][0]["packages"])
        stated = re.search(rf"nvidia-{component}-cu\d+(\S+)", required)[1]
        wanted = spec(build, component)
        assert set(wanted.split(",")) == set(stated.split(",")), (release["version"], build["name"])


def test_each_labelled_jaxlib_is_for_its_cuda_and_cudnn(walk):
    for release, build in jax_builds(walk, labelled=True):
        version = f"{release['version']}+{build['label']}"
        stack = {"jax": version, "cuda": build["cuda"]}
        walk.expect("pass", "CG401", stack, **POOL)
        other = "12.9" if major(build) < 12 else "11.8"
        walk.expect("fail", "CG401", {**stack, "cuda": other}, **POOL)
        low = (*walk.numbers(bound(spec(build, "cudnn"))), 0)[:3]
        walk.expect("pass", "CG402", {**stack, "cudnn": dotted(*low)}, **POOL)
        older = (low[0], low[1] - 1, 9) if low[1] else (low[0] - 1, 9, 9)
        walk.expect("fail", "CG402", {**stack, "cudnn": dotted(*older)}, **POOL)
    walk.done(at_least=200)


def test_a_jaxlib_that_compiles_needs_the_driver_of_the_toolkit_in_use(walk):
    for release, build in jax_builds(walk, labelled=True):
        if "own_toolkit" in build.get("driver", {}):
            stack = {"jax": f"{release['version']}+{build['label']}", "cuda": "11.8"}
            driver_bound(walk, stack, "520.61.05")
    walk.done(at_least=40)


def test_each_jax_release_is_for_the_pythons_with_wheels(walk):
    for release, build in jax_builds(walk):
        stack = {"jax": release["version"], "cuda": CUDA[major(build)]}
        pythons(walk, "jax", stack, release)
    walk.done(at_least=300)


def test_each_jax_build_needs_its_lowest_capability(walk):
    for release, build in jax_builds(walk):
        if least := lowest(release, build):
            stack = {"jax": release["version"], "cuda": CUDA[major(build)]}
            floor_of_capability(walk, stack, least, release, build)
    walk.done(at_least=500)


def test_each_onnxruntime_release_has_its_channels_builds(walk):
    for release in releases(walk, "onnxruntime-gpu"):
        for cuda in toolkits(walk):
            accepted = (f"{cuda}.*", f"{walk.numbers(cuda)[0]}.*")  # of CUDA 10 each minor alone
            builds = [b for b in release["builds"] if b["accepts"] in accepted]
            listed = any(b.get("listed", True) for b in builds)
            other = "warn" if builds else walk.without_build("onnxruntime-gpu", release["version"])
            expected = "pass" if listed else other
            stack = {"onnxruntime-gpu": release["version"], "cuda": cuda}
            walk.expect(expected, "CG401", stack, **POOL)
    walk.done(at_least=800)


def test_each_onnxruntime_build_is_for_one_cudnn_major(walk):
    for release in releases(walk, "onnxruntime-gpu"):
        for build in release["builds"]:
            if not (pin := spec(build, "cudnn")):
                continue
            cuda = build.get("cuda") or CUDA[major(build)]
            stack = {"onnxruntime-gpu": release["version"], "cuda": cuda}
            for cudnn in ("7.6.5", "8.2.4", "8.9.7", "9.1.0", "9.28.0", "10.0.0"):
                fits = f"{walk.numbers(cudnn)[0]}.*" == pin
                expected = "pass" if fits else "fail"
                walk.expect(expected, "CG402", {**stack, "cudnn": cudnn}, **POOL)
    walk.done(at_least=150)


def test_the_package_index_changed_its_onnxruntime_cuda_twice(walk):
    for release in releases(walk, "onnxruntime-gpu"):
        version = walk.numbers(release["version"])
        expected = 11 if version < (1, 19) else 12 if version < (1, 27) else 13
        default = next((b for b in release["builds"] if b.get("default")), None)
        if default is None:
            assert version < (1, 11), "the package index has no older wheel"
            continue
        assert default["name"] == "pypi"
        assert major(default) == expected, release["version"]


def test_each_onnxruntime_release_is_for_the_pythons_with_wheels(walk):
    for release in releases(walk, "onnxruntime-gpu"):
        cuda = CUDA[major(release["builds"][0])]
        stack = {"onnxruntime-gpu": release["version"], "cuda": cuda}
        if "python" in release:
            pythons(walk, "onnxruntime-gpu", stack, release)
    walk.done(at_least=300)


def only(build):
    """The one CUDA that a package is for, where it has no later one of its major."""
    found = re.fullmatch(r"(\d+\.\d+)\.\*", build["accepts"])
    return found and found[1]


def cupy_packages(walk):
    for release in releases(walk, "cupy"):
        for build in release["builds"]:
            yield release, build


def test_each_cupy_package_works_from_its_lowest_cuda_on(walk):
    for release in releases(walk, "cupy"):
        for cuda in toolkits(walk):
            number = walk.numbers(cuda)
            fits = any(
                only(b) == cuda
                or (not only(b) and major(b) == number[0] and number >= walk.numbers(floor(b)))
                for b in release["builds"]
            )
            stack = {"cupy": release["version"], "cuda": cuda}
            other = walk.without_build("cupy", release["version"])
            walk.expect("pass" if fits else other, "CG401", stack, **POOL)
    walk.done(at_least=500)


def test_each_cupy_release_is_for_the_pythons_of_its_own_package(walk):
    for release, build in cupy_packages(walk):
        for python in PYTHONS if "python" in release else ():
            expected = "pass" if python in release["python"]["wheels"] else "fail"
            stack = {"cupy": release["version"], "cuda": floor(build), "python": python}
            walk.expect(expected, "CG404", stack, **POOL)
    walk.done(at_least=300)


def test_cupy_never_fails_over_libraries_that_it_can_do_without(walk):
    for release, build in cupy_packages(walk):
        stack = {"cupy": release["version"], "cuda": floor(build)}
        for rule in ("CG402", "CG403"):
            with_both = {**stack, "cudnn": "9.28.0", "nccl": "2.4.8"}
            walk.expect("pass|not-applicable|warn", rule, with_both, **POOL)
    walk.done(at_least=50)


def test_each_cupy_pin_spans_the_minors_that_its_page_names(walk):
    for release, build in cupy_packages(walk):
        for component in ("cudnn", "nccl"):
            named = build.get("documented", [{}])[0].get(component)
            minors = sorted(map(walk.numbers, named or ()))
            low, high = (minors[0], minors[-1]) if minors else ((), ())
            span = f">={dotted(*low)},<{high[0]}.{high[1] + 1}" if minors else None
            assert spec(build, component) == span, (release["version"], build["name"])


def test_each_tensorrt_release_has_a_build_per_cuda_major(walk):
    for release in releases(walk, "tensorrt"):
        for cuda in toolkits(walk):
            fits = any(accepts(walk, build, cuda) for build in release["builds"])
            stack = {"tensorrt": release["version"], "cuda": cuda}
            other = walk.without_build("tensorrt", release["version"])
            walk.expect("pass" if fits else other, "CG401", stack, **POOL)
    walk.done(at_least=500)


def test_tensorrt_fails_over_cudnn_only_where_it_needs_it(walk):
    for release in releases(walk, "tensorrt"):
        build = release["builds"][-1]
        need = build.get("pins", {}).get("cudnn")
        for cudnn in ("8.9.7", "9.10.2"):
            other = need and f"{walk.numbers(cudnn)[0]}.*" != need["spec"]
            expected = "fail" if other and not need.get("optional") else "pass|not-applicable"
            if release["confidence"] == "derived":
                expected = expected.replace("fail", "fail|unknown")
            cuda = build["cuda"] if major(build) < 12 and "cuda" in build else CUDA[major(build)]
            stack = {"tensorrt": release["version"], "cuda": cuda, "cudnn": cudnn}
            walk.expect(expected, "CG402", stack, **POOL)
    walk.done(at_least=40)


def test_each_tensorrt_release_needs_its_lowest_capability(walk):
    for release in releases(walk, "tensorrt"):
        build = release["builds"][-1]
        if "code" not in build and (least := lowest(release, build)):
            stack = {"tensorrt": release["version"], "cuda": CUDA[major(build)]}
            floor_of_capability(walk, stack, least, release, build)
    walk.done(at_least=100)


def default(release):
    """The build that a plain install gives."""
    (found,) = [build for build in release["builds"] if build.get("default")]
    return found


def test_each_vllm_release_has_its_default_wheel_and_those_beside_it(walk):
    for release in releases(walk, "vllm"):
        listed = {major(b): b.get("listed", True) for b in release["builds"] if "label" in b}
        for cuda in toolkits(walk):
            number = int(cuda.split(".")[0])
            other = {None: "unknown", True: "pass", False: "warn"}[listed.get(number)]
            stack = {"vllm": release["version"], "cuda": cuda}
            plain = number == major(default(release))
            walk.expect("pass" if plain else other, "CG401", stack, **POOL)
    walk.done(at_least=800)


def test_each_vllm_release_is_compiled_against_one_torch(walk):
    for release in releases(walk, "vllm"):
        pin = release["pins"]["torch"]["spec"].removeprefix("==")
        if ">" in pin or major(default(release)) not in (12, 13):
            continue
        major_, minor, patch = walk.numbers(pin)
        cuda = {12: "12.1", 13: "13.0"}[major(default(release))]
        stack = {"vllm": release["version"], "cuda": cuda}
        walk.expect("pass", "CG406", {**stack, "torch": pin}, **POOL)
        walk.expect("pass", "CG406", {**stack, "torch": f"{pin}+cu128"}, **POOL)
        walk.expect("fail", "CG406", {**stack, "torch": dotted(major_, minor - 1, 0)}, **POOL)
        walk.expect("fail", "CG406", {**stack, "torch": dotted(major_, minor + 1, 0)}, **POOL)
        patched = {**stack, "torch": dotted(major_, minor, patch + 1)}
        walk.expect("fail|warn", "CG406", patched, **POOL)
    walk.done(at_least=150)


def test_each_vllm_release_needs_its_lowest_capability(walk):
    for release in releases(walk, "vllm"):
        build = default(release)
        if "code" in build:
            continue
        stack = {"vllm": release["version"], "cuda": CUDA[major(build)]}
        floor_of_capability(walk, stack, lowest(release, build), release, build, pinned=True)
    walk.done(at_least=500)


def test_each_vllm_release_is_for_the_pythons_it_states(walk):
    for release in releases(walk, "vllm"):
        if "requires" not in release["python"]:
            continue
        stated = release["python"]["requires"]
        low, below = bound(stated), bound(stated, "<")
        cuda = CUDA[major(default(release))]
        for python in PYTHONS:
            number = walk.numbers(python)
            out = number < walk.numbers(low) or (below and number >= walk.numbers(below))
            stack = {"vllm": release["version"], "cuda": cuda, "python": python}
            walk.expect("fail" if out else "pass|fail", "CG404", stack, **POOL)
        stack = {"vllm": release["version"], "cuda": cuda, "python": low}
        walk.expect("pass", "CG404", stack, **POOL)
    walk.done(at_least=300)


def test_a_range_of_pythons_says_nothing_of_their_free_threaded_builds(walk):
    for name in ("tensorflow", "jax", "onnxruntime-gpu"):
        for release in releases(walk, name):
            if low := release.get("python", {}).get("min"):
                stack = {name: release["version"], "cuda": "12.9", "python": f"{low}t"}
                walk.expect("fail|unknown", "CG404", stack, **POOL)
    walk.done(at_least=20)


# --- drivers that projects ask for -----------------------------------------------------------


def driver_bound(walk, stack, minimum, os="linux"):
    at = {"gpu": "8.0", "os": os}
    written = walk.as_driver(walk.numbers(minimum))
    walk.expect("fail|not-applicable", "CG407", stack, driver=walk.below(minimum), **at)
    walk.expect("pass", "CG407", stack, driver=written, **at)


def test_each_jax_build_needs_the_driver_that_its_page_names(walk):
    for release, build in jax_builds(walk):
        if minimum := build.get("driver", {}).get("linux"):
            stack = {"jax": release["version"], "cuda": CUDA[major(build)]}
            driver_bound(walk, stack, minimum)
    walk.done(at_least=20)


def test_each_tensorrt_release_needs_the_driver_that_its_page_names(walk):
    for release in releases(walk, "tensorrt"):
        for build in release["builds"]:
            stack = {"tensorrt": release["version"], "cuda": CUDA[major(build)]}
            if named := build.get("driver"):
                driver_bound(walk, stack, named["linux"])
                driver_bound(walk, stack, named["windows"], os="windows")
            else:
                walk.expect("not-applicable", "CG407", stack, driver="450.80.02", gpu="8.0")
    walk.done(at_least=30)


# --- releases that the facts do not know -----------------------------------------------------


@pytest.mark.parametrize(
    "name", ["torch", "tensorflow", "jax", "onnxruntime-gpu", "vllm", "cupy", "tensorrt"]
)
def test_a_release_after_the_newest_known_one_is_unknown(walk, name):
    newest = max(walk.numbers(r["version"]) for r in releases(walk, name))
    for version in ((*newest[:1], newest[1] + 1, 0), (newest[0] + 1, 0, 0)):
        walk.expect("unknown", "CG401", {name: dotted(*version), "cuda": "12.4"}, **POOL)
    walk.done()


def test_every_shipped_framework_is_walked(facts):
    walked = {"torch", "tensorflow", "jax", "onnxruntime-gpu", "vllm", "cupy", "tensorrt"}
    assert facts.framework_names == walked
