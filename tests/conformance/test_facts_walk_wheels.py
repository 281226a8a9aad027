"""Every measured wheel against every compute capability, by an oracle of its own."""

from __future__ import annotations

import re


def runs(walk, document, sass, ptx, device):
    """NVIDIA's two sentences: a cubin on its major upwards, apart from Tegra; PTX upwards."""
    tegra = {walk.numbers(c) for c in document["tegra"]["capabilities"]}
    target = walk.numbers(device)
    for code in map(walk.numbers, sass):
        apart = code != target and (code in tegra or target in tegra)
        if code[0] == target[0] and code[1] <= target[1] and not apart:
            return True
    return any(walk.numbers(code) <= target for code in ptx)


def is_left_to_older_ptx(walk, document, code, device):
    """Only PTX reaches it, and that is older than the machine code: what torch chooses is empty."""
    if runs(walk, document, code["sass"], [], device):
        return False
    newest = max(walk.numbers(one) for one in code["sass"] if one[-1].isdigit())
    return max(map(walk.numbers, code["ptx"])) < newest


def major(build):
    """The CUDA major of a build."""
    return int(re.search(r"\d+", build["accepts"])[0])


def builds(walk):
    """The builds of torch on its install page."""
    for release in walk.framework("torch")["releases"]:
        for build in release["builds"]:
            if build.get("listed", True):
                yield release["version"], build


def test_each_torch_wheel_has_code_for_exactly_the_gpus_of_its_list(walk):
    document = walk.read("cuda_arch_support")
    for version, build in builds(walk):
        if not (code := build.get("code")):
            continue
        for fact in document["compute_capabilities"]:
            device = fact["compute_capability"]
            fits = runs(walk, document, code["sass"], code["ptx"], device)
            at = {"gpu": device, "driver": "580.65.06"}
            expected = "pass" if fits else "fail"
            if fits and is_left_to_older_ptx(walk, document, code, device):
                expected = "unknown"
            named = {"torch": f"{version}+{build['label']}"}
            chosen = {"torch": version, "cuda": build["cuda"]}
            for stack in ({**named, "cuda": build["cuda"]}, chosen):
                walk.expect(expected, "CG405", stack, **at)
    walk.done(at_least=2000)


def test_a_torch_wheel_whose_list_is_not_known_is_unknown(walk):
    for version, build in builds(walk):
        if "code" not in build:
            stack = {"torch": f"{version}+{build['label']}", "cuda": build["cuda"]}
            walk.expect("unknown", "CG405", stack, gpu="9.0")
            stated = {**stack, "arch": ["sm_90"]}
            walk.expect("not-applicable", "CG405", stated, gpu="9.0")
    walk.done()


def test_the_lists_agree_with_the_texts_that_they_were_read_from(walk):
    for version, build in builds(walk):
        if (code := build.get("code")) and code.get("stated"):
            listed = code["stated"].split(";")
            sass = [arch.removesuffix("+PTX") for arch in listed]
            ptx = [arch.removesuffix("+PTX") for arch in listed if arch.endswith("+PTX")]
            assert set(sass) == set(code["sass"]), (version, build["label"])
            assert ptx == code["ptx"], (version, build["label"])


def test_linux_wheels_of_torch_carry_no_ptx_but_for_those_that_the_facts_name(walk):
    """2.7 cu128, 2.8 cu129 and CUDA 13 builds beside the default carry PTX, of 12.0 only.

    Before 1.6 all carried the PTX of their lowest or second list entry: 5.2 only before 0.4.
    """
    for version, build in builds(walk):
        if tuple(map(int, version.split(".")[:2])) < (1, 6):
            expected = (["5.2"],) if version < "0.4" else (["3.7"], ["5.0"])
            assert build.get("code", {}).get("ptx") in expected, (version, build["label"])
            continue
        minor = ".".join(version.split(".")[:2])
        named = (minor, build["label"]) in (("2.7", "cu128"), ("2.8", "cu129"))
        beside = build["label"].startswith("cu13") and not build.get("default")
        if code := build.get("code"):
            expected = ["12.0"] if named or beside else []
            assert code["ptx"] == expected, (version, build["label"])


def test_volta_is_absent_in_2_7_cu128_present_to_2_10_and_absent_from_2_11(walk):
    for version, build in builds(walk):
        if build["label"] == "cu128":
            number = walk.numbers(version)
            there = (2, 8) <= number < (2, 11)
            stack = {"torch": f"{version}+cu128", "cuda": "12.8"}
            walk.expect("pass" if there else "fail", "CG405", stack, gpu="V100-SXM2-32GB")
    walk.done(at_least=5)


def test_each_measured_tensorflow_wheel_has_code_for_exactly_the_gpus_of_its_list(walk):
    document = walk.read("cuda_arch_support")
    releases = walk.framework("tensorflow")["releases"]
    measured = [(r, b) for r in releases for b in r["builds"] if b.get("code")]
    for release, build in measured:
        code = build["code"]
        for fact in document["compute_capabilities"]:
            device = fact["compute_capability"]
            fits = runs(walk, document, code["sass"], code["ptx"], device)
            stack = {"tensorflow": release["version"], "cuda": build["cuda"]}
            walk.expect("pass" if fits else "fail", "CG405", stack, gpu=device)
    if measured:
        walk.done(at_least=20)


def test_each_onnxruntime_wheel_has_code_for_exactly_the_gpus_of_its_list(walk):
    document = walk.read("cuda_arch_support")
    for release in walk.framework("onnxruntime-gpu")["releases"]:
        for build in release["builds"]:
            if not (code := build.get("code")):
                continue
            only = {name.split("_")[1].rstrip("a") for name in code.get("specific", ())}
            for fact in document["compute_capabilities"]:
                device = fact["compute_capability"]
                fits = runs(walk, document, code["sass"], code["ptx"], device)
                fits = fits or device.replace(".", "") in only
                stack = {"onnxruntime-gpu": release["version"], "cuda": f"{major(build)}.0"}
                said = "pass" if fits else "fail"  # CG411 judges the wheels that have a record
                walk.expect(f"{said}|not-applicable", "CG405", stack, gpu=device)
    walk.done(at_least=500)


def test_every_fact_of_a_wheel_names_its_source(facts):
    for name in facts.framework_names:
        for release in facts.framework(name).releases:
            assert release.source.title, (name, release.version)
            for build in release.builds:
                assert build.source.title, (name, release.version, build.title)
                if build.sass is not None:
                    assert build.arch_source, (name, release.version, build.title)
