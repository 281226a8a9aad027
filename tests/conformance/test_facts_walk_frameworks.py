"""TensorFlow, JAX, ONNX Runtime, CuPy, TensorRT, vLLM: CUDA, pins, Python, GPU and driver."""

from __future__ import annotations

import re

import pytest

POOL = {"gpu": "7.5", "driver": "610.43.02"}
CUDA = {10: "10.2", 11: "11.8", 12: "12.9", 13: "13.0"}
"""A toolkit of each major."""
PYTHONS = [f"3.{minor}" for minor in range(6, 17)]


def releases(walk, name):
    return walk.read(name)["releases"]


def toolkits(walk):
    return sorted({r["series"] for r in walk.read("cuda_driver")["releases"]}, key=walk.numbers)


def dotted(*parts):
    return ".".join(map(str, parts))


def python_range(walk, name, stack, low, high):
    """Inside the published range passes, outside fails; an end that is not published is open."""
    for python in PYTHONS:
        number = walk.numbers(python)
        out = (low and number < walk.numbers(low)) or (high and number > walk.numbers(high))
        expected = "fail" if out else "pass"
        walk.expect(expected, "CG404", {**stack, "python": python}, **POOL)


def test_each_tensorflow_release_has_one_cuda_build(walk):
    for release in releases(walk, "tensorflow"):
        for cuda in toolkits(walk):
            fits = walk.numbers(cuda)[0] == release["cuda"]["major"]
            stack = {"tensorflow": release["version"], "cuda": cuda}
            walk.expect("pass" if fits else "fail", "CG401", stack, **POOL)
            windows = "pass" if fits and release["windows_native_gpu"] else "fail"
            walk.expect(windows, "CG401", stack, os="windows", gpu="7.5", driver="576.02")
    walk.done(at_least=800)


def test_each_tensorflow_release_compares_cudnn_by_major_and_minor(walk):
    for release in releases(walk, "tensorflow"):
        major, minor = walk.numbers(release["cudnn"]["tested"])[:2]
        stack = {"tensorflow": release["version"], "cuda": release["cuda"]["tested"]}
        table = [("pass", (major, minor, 0)), ("pass", (major, minor, 9)),
                 ("pass", (major, minor + 1, 0)), ("fail", (major + 1, 0, 0)),
                 ("fail", (major - 1, 9, 9))]  # fmt: skip
        if minor:
            table.append(("fail", (major, minor - 1, 9)))
        for expected, version in table:
            walk.expect(expected, "CG402", {**stack, "cudnn": dotted(*version)}, **POOL)
    walk.done(at_least=100)


def test_each_tensorflow_release_is_for_its_tested_pythons(walk):
    for release in releases(walk, "tensorflow"):
        stack = {"tensorflow": release["version"], "cuda": release["cuda"]["tested"]}
        python = release["python"]
        python_range(walk, "tensorflow", stack, python["min"], python["max"])
    walk.done(at_least=200)


def test_the_code_of_each_tensorflow_wheel_begins_at_its_lowest_capability(walk):
    for release in releases(walk, "tensorflow"):
        lowest = release["min_compute_capability"]
        if lowest:
            assert min(release["gpu_code"]["sass"], key=walk.numbers) == lowest["value"]


def floor_of_capability(walk, stack, lowest):
    known = walk.read("cuda_arch_support")["compute_capabilities"]
    for device in (c["compute_capability"] for c in known):
        enough = walk.numbers(device) >= walk.numbers(lowest)
        at = {"gpu": device, "driver": "580.65.06"}
        walk.expect("pass" if enough else "fail", "CG405", stack, **at)


def jax_variants(walk):
    for release in releases(walk, "jax"):
        for variant in release["variants"]:
            if variant["published"]:
                yield release, variant


def bound(text, operator=">="):
    found = re.search(rf"{operator}\s*([\d.]+)", text or "")
    return found[1] if found else None


def test_each_jax_release_has_the_variants_that_can_be_installed(walk):
    for release in releases(walk, "jax"):
        published = {v["cuda_major"]: v for v in release["variants"] if v["published"]}
        for cuda in toolkits(walk):
            number = walk.numbers(cuda)
            variant = published.get(number[0])
            low = variant and (variant["cuda_range"] or variant["cuda_runtime_pin"])
            low = walk.numbers(bound(low))[:2] if low else (number[0], 0)
            expected = "pass" if variant and number >= low else "fail"
            stack = {"jax": release["version"], "cuda": cuda}
            walk.expect(expected, "CG401", stack, **POOL)
    walk.done(at_least=800)


@pytest.mark.parametrize(("component", "rule"), [("cudnn", "CG402"), ("nccl", "CG403")])
def test_each_jax_variant_asks_for_its_plugins_pins(walk, component, rule):
    for release, variant in jax_variants(walk):
        spec = variant[f"{component}_pin"]
        low = walk.numbers(bound(spec) or bound(spec, "==") or "0")[:3] if spec else None
        if low is None:
            continue
        low = (*low, 0, 0)[:3]
        cuda = (variant["cuda_range"] or variant["cuda_runtime_pin"]) or ""
        series = bound(cuda) or f"{variant['cuda_major']}.0"
        stack = {"jax": release["version"], "cuda": dotted(*walk.numbers(series)[:2])}
        walk.expect("pass", rule, {**stack, component: dotted(*low)}, **POOL)
        above = "warn" if "==" in spec else "pass"
        walk.expect(above, rule, {**stack, component: dotted(low[0], low[1] + 1, 0)}, **POOL)
        if low[1]:
            older = dotted(low[0], low[1] - 1, 99 if low[1] > 1 else 9)
            walk.expect("fail", rule, {**stack, component: older}, **POOL)
        walk.expect("fail", rule, {**stack, component: dotted(low[0] + 1, 0, 0)}, **POOL)
        walk.expect("fail", rule, {**stack, component: dotted(low[0] - 1, 9, 9)}, **POOL)
    walk.done(at_least=100)


def test_each_jax_release_is_for_the_pythons_with_wheels(walk):
    for release, variant in jax_variants(walk):
        stack = {"jax": release["version"], "cuda": CUDA[variant["cuda_major"]]}
        python_range(walk, "jax", stack, release["python"]["min"], release["python"]["max"])
    walk.done(at_least=300)


def test_each_jax_variant_needs_its_lowest_capability(walk):
    for release, variant in jax_variants(walk):
        if lowest := variant["min_compute_capability"]:
            cuda = CUDA[variant["cuda_major"]]
            floor_of_capability(walk, {"jax": release["version"], "cuda": cuda}, lowest)
    walk.done(at_least=500)


def test_each_onnxruntime_release_has_its_channels_builds(walk):
    for release in releases(walk, "onnxruntime"):
        for cuda in toolkits(walk):
            builds = [b for b in release["builds"] if b["cuda_major"] == walk.numbers(cuda)[0]]
            listed = any(b["listed"] for b in builds)
            expected = "pass" if listed else "warn" if builds else "fail"
            stack = {"onnxruntime-gpu": release["version"], "cuda": cuda}
            walk.expect(expected, "CG401", stack, **POOL)
    walk.done(at_least=800)


def test_each_onnxruntime_build_is_for_one_cudnn_major(walk):
    for release in releases(walk, "onnxruntime"):
        for build in release["builds"]:
            if build["cudnn_major"] is None:
                continue
            cuda = CUDA[build["cuda_major"]]
            if re.fullmatch(r"\d+\.\d+", build["cuda"]):
                cuda = build["cuda"]
            stack = {"onnxruntime-gpu": release["version"], "cuda": cuda}
            for cudnn in ("7.6.5", "8.2.4", "8.9.7", "9.1.0", "9.28.0", "10.0.0"):
                fits = walk.numbers(cudnn)[0] == build["cudnn_major"]
                expected = "pass" if fits else "fail"
                walk.expect(expected, "CG402", {**stack, "cudnn": cudnn}, **POOL)
    walk.done(at_least=150)


def test_the_package_index_changed_its_onnxruntime_cuda_twice(walk):
    for release in releases(walk, "onnxruntime"):
        version = walk.numbers(release["version"])
        expected = 11 if version < (1, 19) else 12 if version < (1, 27) else 13
        (default,) = [b for b in release["builds"] if b["channel"] == release["default_build"]]
        assert default["cuda_major"] == expected, release["version"]


def test_each_onnxruntime_release_is_for_the_pythons_with_wheels(walk):
    for release in releases(walk, "onnxruntime"):
        cuda = CUDA[release["builds"][0]["cuda_major"]]
        stack = {"onnxruntime-gpu": release["version"], "cuda": cuda}
        python = release["python"]
        python_range(walk, "onnxruntime-gpu", stack, python["min"], python["max"])
    walk.done(at_least=300)


def test_each_cupy_package_works_from_its_lowest_cuda_on(walk):
    versions = {r["version"] for r in releases(walk, "cupy")}
    for version in versions:
        packages = [r for r in releases(walk, "cupy") if r["version"] == version]
        for cuda in toolkits(walk):
            number = walk.numbers(cuda)
            fits = any(
                p.get("cuda_only") == cuda
                or (
                    not p.get("cuda_only")
                    and p["cuda_major"] == number[0]
                    and number >= walk.numbers(p["cuda_min"])
                )
                for p in packages
            )
            stack = {"cupy": version, "cuda": cuda}
            walk.expect("pass" if fits else "fail", "CG401", stack, **POOL)
    walk.done(at_least=500)


def test_each_cupy_release_is_for_the_pythons_of_its_own_package(walk):
    for package in releases(walk, "cupy"):
        cuda = package.get("cuda_only") or package["cuda_min"]
        for python in PYTHONS if package["python_wheels_linux_x86_64"] else ():
            expected = "pass" if python in package["python_wheels_linux_x86_64"] else "fail"
            stack = {"cupy": package["version"], "cuda": cuda, "python": python}
            walk.expect(expected, "CG404", stack, **POOL)
    walk.done(at_least=300)


def test_cupy_never_fails_over_libraries_that_it_can_do_without(walk):
    for package in releases(walk, "cupy"):
        cuda = package.get("cuda_only") or package["cuda_min"]
        stack = {"cupy": package["version"], "cuda": cuda, "cudnn": "9.28.0", "nccl": "2.4.8"}
        for rule in ("CG402", "CG403"):
            walk.expect("pass|not-applicable|warn", rule, stack, **POOL)
    walk.done(at_least=50)


def test_each_tensorrt_release_has_a_build_per_cuda_major(walk):
    for release in releases(walk, "tensorrt"):
        for cuda in toolkits(walk):
            fits = walk.numbers(cuda)[0] in release["cuda_majors"]
            stack = {"tensorrt": release["version"], "cuda": cuda}
            walk.expect("pass" if fits else "fail", "CG401", stack, **POOL)
    walk.done(at_least=500)


def test_tensorrt_fails_over_cudnn_only_where_it_needs_it(walk):
    for release in releases(walk, "tensorrt"):
        need = release["cudnn_needed"]
        cuda = CUDA[release["cuda_majors"][-1]]
        for cudnn in ("8.9.7", "9.10.2"):
            other = need and need["major"] and walk.numbers(cudnn)[0] != need["major"]
            expected = "fail" if other and not need["optional"] else "pass|not-applicable"
            stack = {"tensorrt": release["version"], "cuda": cuda, "cudnn": cudnn}
            walk.expect(expected, "CG402", stack, **POOL)
    walk.done(at_least=40)


def test_each_tensorrt_release_needs_its_lowest_capability(walk):
    for release in releases(walk, "tensorrt"):
        cuda = CUDA[release["cuda_majors"][-1]]
        if lowest := release["min_compute_capability"]["value"]:
            stack = {"tensorrt": release["version"], "cuda": cuda}
            floor_of_capability(walk, stack, lowest)
    walk.done(at_least=100)


def test_each_vllm_release_has_its_default_wheel_and_those_beside_it(walk):
    for release in releases(walk, "vllm"):
        beside = {w["cuda"].split(".")[0]: w["listed"] for w in release.get("other_wheels", ())}
        for cuda in toolkits(walk):
            major = cuda.split(".")[0]
            default = int(major) == release["default_wheel_cuda"]["major"]
            other = {None: "fail", True: "pass", False: "warn"}[beside.get(major)]
            stack = {"vllm": release["version"], "cuda": cuda}
            walk.expect("pass" if default else other, "CG401", stack, **POOL)
    walk.done(at_least=800)


def test_each_vllm_release_is_compiled_against_one_torch(walk):
    for release in releases(walk, "vllm"):
        major, minor, patch = walk.numbers(release["torch_pin"])
        cuda = {12: "12.1", 13: "13.0"}[release["default_wheel_cuda"]["major"]]
        stack = {"vllm": release["version"], "cuda": cuda}
        pin = release["torch_pin"]
        walk.expect("pass", "CG406", {**stack, "torch": pin}, **POOL)
        walk.expect("pass", "CG406", {**stack, "torch": f"{pin}+cu128"}, **POOL)
        walk.expect("fail", "CG406", {**stack, "torch": dotted(major, minor - 1, 0)}, **POOL)
        walk.expect("fail", "CG406", {**stack, "torch": dotted(major, minor + 1, 0)}, **POOL)
        patched = {**stack, "torch": dotted(major, minor, patch + 1)}
        walk.expect("fail|warn", "CG406", patched, **POOL)
    walk.done(at_least=150)


def test_each_vllm_release_needs_its_lowest_capability(walk):
    for release in releases(walk, "vllm"):
        cuda = {12: "12.9", 13: "13.0"}[release["default_wheel_cuda"]["major"]]
        lowest = release["min_compute_capability"]["value"]
        floor_of_capability(walk, {"vllm": release["version"], "cuda": cuda}, lowest)
    walk.done(at_least=500)


def test_each_vllm_release_is_for_the_pythons_it_states(walk):
    for release in releases(walk, "vllm"):
        stated = release["python"]["requires_python"]
        low, below = bound(stated), bound(stated, "<")
        cuda = {12: "12.9", 13: "13.0"}[release["default_wheel_cuda"]["major"]]
        for python in PYTHONS:
            number = walk.numbers(python)
            out = number < walk.numbers(low) or (below and number >= walk.numbers(below))
            stack = {"vllm": release["version"], "cuda": cuda, "python": python}
            walk.expect("fail" if out else "pass|fail", "CG404", stack, **POOL)
        stack = {"vllm": release["version"], "cuda": cuda, "python": low}
        walk.expect("pass", "CG404", stack, **POOL)
    walk.done(at_least=300)


def test_a_range_of_pythons_says_nothing_of_their_free_threaded_builds(walk):
    for name, table in (("tensorflow", "tensorflow"), ("jax", "jax"), ("onnxruntime-gpu",
                        "onnxruntime")):  # fmt: skip
        for release in releases(walk, table):
            low = release["python"]["min"]
            stack = {name: release["version"], "cuda": "12.9", "python": f"{low}t"}
            walk.expect("fail|not-checked|unknown", "CG404", stack, **POOL)
    walk.done(at_least=50)


# --- drivers that projects ask for -----------------------------------------------------------


def driver_bound(walk, stack, minimum, os="linux"):
    at = {"gpu": "8.0", "os": os}
    written = walk.as_driver(walk.numbers(minimum))
    walk.expect("fail", "CG407", stack, driver=walk.below(minimum), **at)
    walk.expect("pass", "CG407", stack, driver=written, **at)


def test_each_jax_variant_needs_the_driver_that_its_page_names(walk):
    for release, variant in jax_variants(walk):
        if minimum := variant["min_driver_linux"]:
            cuda = CUDA[variant["cuda_major"]]
            driver_bound(walk, {"jax": release["version"], "cuda": cuda}, minimum)
    walk.done(at_least=20)


def test_each_tensorrt_release_needs_the_driver_that_its_page_names(walk):
    document = walk.read("tensorrt")["driver"]
    for release in releases(walk, "tensorrt"):
        for major in release["cuda_majors"]:
            stack = {"tensorrt": release["version"], "cuda": CUDA[major]}
            named = [f for f in document["floors"] if major in f["cuda_majors"]]
            if release["version"] in document["applies_to_releases"] and named:
                driver_bound(walk, stack, named[0]["linux"])
                driver_bound(walk, stack, named[0]["windows"], os="windows")
            else:
                walk.expect("not-applicable", "CG407", stack, driver="450.80.02", gpu="8.0")
    walk.done(at_least=30)


# --- releases that the facts do not know -----------------------------------------------------


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("torch", "pytorch"),
        ("tensorflow", "tensorflow"),
        ("jax", "jax"),
        ("onnxruntime-gpu", "onnxruntime"),
        ("vllm", "vllm"),
        ("cupy", "cupy"),
        ("tensorrt", "tensorrt"),
    ],
)
def test_a_release_after_the_newest_known_one_is_unknown(walk, name, table):
    newest = max(walk.numbers(r["version"]) for r in releases(walk, table))
    for version in ((*newest[:1], newest[1] + 1, 0), (newest[0] + 1, 0, 0)):
        walk.expect("unknown", "CG401", {name: dotted(*version), "cuda": "12.4"}, **POOL)
    walk.done()
