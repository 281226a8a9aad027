"""Every cuDNN release against CUDA majors, GPUs and drivers.

Every NCCL release against CUDA majors and GPUs.
"""

from __future__ import annotations

CUDA = {9: "9.2", 10: "10.2", 11: "11.8", 12: "12.9", 13: "13.0"}
"""A toolkit of each major."""
BELOW = "fail|not-applicable"
"""CG101 alone speaks of a driver that is below the minimum of its CUDA major, too."""


def releases(walk, name):
    return walk.read(name)["releases"]


def series_of(walk, major):
    """Every toolkit series of a major."""
    known = {r["series"] for r in walk.read("cuda_driver")["releases"]}
    return sorted((s for s in known if walk.numbers(s)[0] == major), key=walk.numbers)


def capabilities(walk):
    """Compute capabilities of everything but Tegra."""
    document = walk.read("cuda_arch_support")
    known = [c["compute_capability"] for c in document["compute_capabilities"]]
    return [c for c in known if c not in document["tegra"]["capabilities"]]


# --- cuDNN and CUDA --------------------------------------------------------------------------


def test_each_cudnn_release_belongs_to_the_cuda_majors_it_was_built_for(walk):
    for release in releases(walk, "cudnn"):
        for spelling in (release["version"], release["integer"], *(release["builds"] or ())):
            for major, cuda in CUDA.items():
                built = "pass" if major in release["cuda_majors"] else "fail"
                walk.expect(built, "CG301", {"cudnn": str(spelling), "cuda": cuda})
    walk.done(at_least=1000)


def test_each_cudnn_build_belongs_to_its_own_cuda_major_only(walk):
    for release in releases(walk, "cudnn"):
        for made_for in (m for m in CUDA if m != 9):
            for major, cuda in CUDA.items():
                fits = made_for == major and major in release["cuda_majors"]
                stack = {"cudnn": f"{release['version']}+cu{made_for}", "cuda": cuda}
                walk.expect("pass" if fits else "fail", "CG301", stack)
    walk.done(at_least=1000)


def test_a_cudnn_build_works_with_every_minor_of_its_cuda_major(walk):
    for release in releases(walk, "cudnn"):
        for major in release["cuda_majors"]:
            for cuda in series_of(walk, major):
                stack = {"cudnn": release["version"], "cuda": cuda}
                walk.expect("pass", "CG301", stack, gpu="7.5")
                lowest = release["min_cc"]
                stated = str(major) in lowest if isinstance(lowest, dict) else lowest
                known = "pass" if stated else "pass|unknown"
                walk.expect(known, "CG302", stack, gpu="7.5")
    walk.done(at_least=1000)


def test_the_boundaries_that_the_facts_speak_of_are_in_the_releases(walk):
    majors = {r["version"]: r["cuda_majors"] for r in releases(walk, "cudnn")}
    assert 11 in majors["9.10.2"]
    assert 11 not in majors["9.11.0"]
    assert 12 in majors["8.8.0"]
    assert 12 not in majors["8.7.0"]
    assert 13 in majors["9.12.0"]
    assert 13 not in majors["9.11.1"]


def test_a_cudnn_release_after_the_newest_known_one_is_unknown(walk):
    newest = max(walk.numbers(r["version"]) for r in releases(walk, "cudnn"))
    for version in ((*newest[:2], newest[2] + 1), (newest[0], newest[1] + 1, 0)):
        stack = {"cudnn": ".".join(map(str, version)), "cuda": "12.9"}
        walk.expect("unknown", "CG301", stack)
    walk.done()


# --- cuDNN and GPUs --------------------------------------------------------------------------


def minimum_of(walk, release, major):
    stated = release["min_cc"]
    text = stated.get(str(major)) if isinstance(stated, dict) else stated
    return walk.numbers(text) if text else None


def rows_of(release, major):
    rows = [r for r in release["support_matrix"] or () if r["package_cuda_major"] == major]
    return [r for r in rows if r["compute_capabilities"]]


def covers(walk, row, device):
    """A listed capability stands for those that run its code."""
    listed = [walk.numbers(c) for c in row["compute_capabilities"]]
    return any(c[0] == device[0] and c[1] <= device[1] for c in listed)


def neighbour_lists(walk, release, major):
    """Rows of the nearest earlier and later release of the same cuDNN major that have lists."""
    version = walk.numbers(release["version"])
    near = [
        (walk.numbers(other["version"]), rows_of(other, major))
        for other in releases(walk, "cudnn")
        if walk.numbers(other["version"])[0] == version[0] and rows_of(other, major)
    ]
    earlier = [rows for number, rows in near if number < version]
    later = [rows for number, rows in near if number > version]
    return (earlier[-1] if earlier else None), (later[0] if later else None)


def each_build(walk):
    for release in releases(walk, "cudnn"):
        for major in release["cuda_majors"]:
            yield release, major


def test_below_its_minimum_capability_each_cudnn_build_fails(walk):
    for release, major in each_build(walk):
        minimum = minimum_of(walk, release, major)
        for device in capabilities(walk):
            if major in CUDA and minimum and walk.numbers(device) < minimum:
                stack = {"cudnn": release["version"], "cuda": CUDA[major]}
                walk.expect("fail", "CG302", stack, gpu=device)
    walk.done(at_least=500)


def test_at_its_published_minimum_capability_each_cudnn_build_passes(walk):
    for release, major in each_build(walk):
        minimum = minimum_of(walk, release, major)
        if minimum and release["min_cc_confidence"] == "published":
            stack = {"cudnn": release["version"], "cuda": series_of(walk, major)[0]}
            walk.expect("pass", "CG302", stack, gpu=".".join(map(str, minimum)))
    walk.done(at_least=20)


def test_each_listed_gpu_is_supported_unless_the_rows_of_the_toolkit_leave_it_out(walk):
    """Blackwell on 9.10.2 needs CUDA 12.8; a toolkit that no row speaks of is no bound."""
    for release, major in each_build(walk):
        rows = rows_of(release, major)
        for device in capabilities(walk):
            number = walk.numbers(device)
            if not any(covers(walk, row, number) for row in rows):
                continue
            for cuda in series_of(walk, major):
                spoken = [r for r in rows if cuda in (r["cuda_toolkits"] or (cuda,))]
                fits = not spoken or any(covers(walk, row, number) for row in spoken)
                stack = {"cudnn": release["version"], "cuda": cuda}
                walk.expect("pass" if fits else "fail", "CG302", stack, gpu=device)
    walk.done(at_least=500)


def test_a_gpu_newer_than_a_releases_list_warns_from_9_0_and_fails_before(walk):
    start = walk.numbers(walk.read("cudnn")["rules"]["hardware_forward_compat"]["from"])
    for release, major in each_build(walk):
        listed = [c for row in rows_of(release, major) for c in row["compute_capabilities"]]
        for device in capabilities(walk):
            if listed and walk.numbers(device) >= (max(walk.numbers(c)[0] for c in listed) + 1, 0):
                expected = "warn" if walk.numbers(release["version"]) >= start else "fail"
                stack = {"cudnn": release["version"], "cuda": series_of(walk, major)[-1]}
                walk.expect(expected, "CG302", stack, gpu=device)
    walk.done(at_least=30)


def test_without_a_list_of_its_own_a_release_is_judged_by_what_its_neighbours_agree_on(walk):
    """Dropped GPUs are in the minimum; what only the later neighbour lists is not known."""
    for release, major in each_build(walk):
        if rows_of(release, major):
            continue
        earlier, later = neighbour_lists(walk, release, major)
        minimum = minimum_of(walk, release, major)
        for device in map(walk.numbers, capabilities(walk)):
            before = any(covers(walk, row, device) for row in earlier or ())
            after = any(covers(walk, row, device) for row in later or ())
            above = minimum is not None and device >= minimum
            if before and after and above:
                expected = "pass"
            elif after and not before and earlier is not None:
                expected = "unknown|warn"
            else:
                continue
            stack = {"cudnn": release["version"], "cuda": CUDA[major]}
            walk.expect(expected, "CG302", stack, gpu=".".join(map(str, device)))
    walk.done(at_least=100)


def test_cudnn_on_tegra_is_not_checked(walk):
    for device in walk.read("cuda_arch_support")["tegra"]["capabilities"]:
        stack = {"cudnn": "9.10.2", "cuda": "12.8"}
        walk.expect("not-checked", "CG302", stack, gpu=device)
    walk.done(at_least=5)


# --- cuDNN and drivers -----------------------------------------------------------------------


def test_each_published_driver_minimum_of_cudnn_is_a_boundary(walk):
    for release, major in each_build(walk):
        matrix = release["support_matrix"] or ()
        for row in (r for r in matrix if r["package_cuda_major"] == major):
            for os in ("linux", "windows"):
                if row[f"min_driver_{os}"] is None:
                    continue
                for cuda in row["cuda_toolkits"] or series_of(walk, major):
                    series = cuda.split()[0]
                    for device in row["compute_capabilities"] or ["7.5"]:
                        floor = lowest_driver(walk, release, major, series, device, os)
                        stack = {"cudnn": release["version"], "cuda": series}
                        at = {"gpu": device, "os": os}
                        written = walk.as_driver(walk.numbers(floor))
                        walk.expect(BELOW, "CG303", stack, driver=walk.below(floor), **at)
                        walk.expect("pass", "CG303", stack, driver=written, **at)
                        walk.expect("pass", "CG303", stack, driver=walk.above(floor), **at)
    walk.done(at_least=1000)


def lowest_driver(walk, release, major, series, device, os):
    """The lowest minimum of the rows that speak of this toolkit and GPU."""
    found = [
        row[f"min_driver_{os}"]
        for row in release["support_matrix"]
        if row["package_cuda_major"] == major
        and row[f"min_driver_{os}"]
        and (row["cuda_toolkits"] is None or series in [t.split()[0] for t in row["cuda_toolkits"]])
        and (row["compute_capabilities"] is None or covers(walk, row, walk.numbers(device)))
    ]
    return min(found, key=walk.numbers)


def test_a_release_without_a_matrix_has_the_driver_minimum_of_its_cuda_major(walk):
    for release, major in each_build(walk):
        floors = release["min_driver_linux_by_cuda_major"] or {}
        matrix = release["support_matrix"] or ()
        if any(row["package_cuda_major"] == major for row in matrix) or str(major) not in floors:
            continue
        floor = floors[str(major)]["value"]
        stack = {"cudnn": release["version"], "cuda": CUDA[major]}
        walk.expect(BELOW, "CG303", stack, driver=walk.below(floor), gpu="8.0")
        walk.expect("pass", "CG303", stack, driver=floor, gpu="8.0")
    walk.done(at_least=50)


def test_every_toolkit_of_a_major_has_the_majors_driver_minimum(walk):
    """Also the toolkits that came after the page was written."""
    for release, major in each_build(walk):
        floors = release["min_driver_linux_by_cuda_major"] or {}
        if str(major) in floors:
            floor = floors[str(major)]["value"]
            for cuda in series_of(walk, major):
                stack = {"cudnn": release["version"], "cuda": cuda}
                walk.expect(BELOW, "CG303", stack, driver=walk.below(floor), gpu="7.5")
                walk.expect("pass", "CG303", stack, driver=floor, gpu="7.5")
    walk.done(at_least=500)


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
                expected = known if majors else "unknown"
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
