"""Every NCCL release against CUDA majors and GPUs."""

from __future__ import annotations

CUDA = {9: "9.2", 10: "10.2", 11: "11.8", 12: "12.9", 13: "13.0"}
"""A toolkit of each major."""


def releases(walk, name):
    return walk.read(name)["releases"]


def capabilities(walk):
    """Compute capabilities of everything but Tegra."""
    document = walk.read("cuda_arch_support")
    known = [c["compute_capability"] for c in document["compute_capabilities"]]
    return [c for c in known if c not in document["tegra"]["capabilities"]]


def packaged_for(walk, release):
    """CUDA majors of wheels and of Debian or RPM packages."""
    suffixes = release["deb_rpm_cuda_suffixes_seen"] or ()
    return {*release["cuda_majors_of_wheels"], *(walk.numbers(s)[0] for s in suffixes)}


def test_each_nccl_release_belongs_to_the_cuda_majors_it_was_packaged_for(walk):
    for release in releases(walk, "nccl"):
        majors = packaged_for(walk, release)
        for version in (release["version"], release["integer"]):
            for major, cuda in CUDA.items():
                known = "pass" if major in majors else "fail"
                expected = known if majors else "not-checked"
                walk.expect(expected, "CG501", {"nccl": str(version), "cuda": cuda})
    walk.done(at_least=300)


def test_each_nccl_build_belongs_to_its_own_cuda_major_only(walk):
    for release in releases(walk, "nccl"):
        for made_for in packaged_for(walk, release):
            for major, cuda in CUDA.items():
                stack = {"nccl": f"{release['version']}-1+cuda{made_for}.0", "cuda": cuda}
                walk.expect("pass" if made_for == major else "fail", "CG501", stack)
    walk.done(at_least=200)


def test_an_nccl_release_that_is_not_known_is_unknown(walk):
    walk.expect("unknown", "CG501", {"nccl": "2.99.1", "cuda": "12.9"})
    walk.expect("unknown", "CG501", {"nccl": "2.21.4", "cuda": "12.9"})
    walk.done()


def test_each_nccl_build_warns_below_the_lowest_architecture_of_its_default_build(walk):
    for release in releases(walk, "nccl"):
        for name, lowest in (release["min_cc_derived"] or {}).items():
            major = int(name.removeprefix("cu"))
            for device in capabilities(walk):
                enough = walk.numbers(device) >= walk.numbers(lowest)
                stack = {"nccl": release["version"], "cuda": CUDA[major]}
                walk.expect("pass" if enough else "warn", "CG502", stack, gpu=device)
    walk.done(at_least=500)


def test_nccl_leaves_maxwell_out_from_2_28_3_on(walk):
    for release in releases(walk, "nccl"):
        if release["min_cc_derived"] and 12 in release["cuda_majors_of_wheels"]:
            later = walk.numbers(release["version"]) >= (2, 28, 3)
            stack = {"nccl": release["version"], "cuda": "12.9"}
            walk.expect("warn" if later else "pass", "CG502", stack, gpu="5.2")
    walk.done(at_least=20)
