"""Every toolkit at its exact boundaries on drivers. In every walk the fact files are the oracle."""

from __future__ import annotations

import pytest

SYSTEMS = ("linux", "windows", "wsl")
ANY = {"gpu": "A100-SXM4-80GB"}


def numbered_as(system):
    """WSL has the driver numbers of Windows."""
    return "linux" if system == "linux" else "windows"


def floors(walk):
    """Minor-version minimums by major and OS, as the release notes publish them."""
    rules = walk.read("cuda_driver")["minor_version_compat"]
    return {
        rule["major"]: {
            "linux": rule.get("linux_min_first_public_driver") or rule["linux_min"],
            "windows": rule["windows_min"],
            "exceptions": {e["cuda"]: e for e in rule.get("exceptions", ())},
        }
        for rule in rules
        if rule["linux_min"]
    }


def floor_of(walk, release, system, cpu="x86_64"):
    """Its major's minimum, its own exception, or before CUDA 11 its own driver."""
    os = numbered_as(system)
    major = walk.numbers(release["cuda"])[0]
    rule = floors(walk).get(major)
    if rule is None:
        return release[f"{os}_toolkit_driver_min"]
    special = rule["exceptions"].get(release["series"], {})
    arm = special.get(f"{os}_{cpu}_min")
    return arm or special.get(f"{os}_min") or rule[os]


def branch_cuda(walk, driver):
    """What a Linux driver reports, by its branch."""
    branches = walk.read("driver_branches")["branches"]
    major = walk.numbers(driver)[0]
    known = {b["branch"]: b["nvidia_smi_cuda"] for b in branches}
    return walk.numbers(known[major]) if known.get(major) else None


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_toolkit_runs_from_its_floor_on_and_not_below(walk, system):
    for release in walk.read("cuda_driver")["releases"]:
        floor = floor_of(walk, release, system)
        stack = {"cuda": release["cuda"]}
        if floor is None:
            walk.expect("not-checked", "CG101", stack, driver="600.00", os=system)
            continue
        at = walk.as_driver(walk.numbers(floor))
        walk.expect("fail", "CG101", stack, driver=walk.below(floor), os=system, **ANY)
        walk.expect("pass", "CG101", stack, driver=at, os=system, **ANY)
        walk.expect("pass", "CG101", stack, driver=walk.above(floor), os=system, **ANY)
    walk.done(at_least=150)


def test_a_newer_driver_always_runs_an_older_toolkit(walk):
    branches = walk.read("driver_branches")["branches"]
    for release in walk.read("cuda_driver")["releases"]:
        floor = walk.numbers(floor_of(walk, release, "linux"))
        for branch in branches:
            if branch["branch"] > floor[0]:
                driver = f"{branch['branch']}.10.01"
                walk.expect("pass", "CG101", {"cuda": release["cuda"]}, driver=driver)
            elif branch["branch"] < floor[0]:
                driver = f"{branch['branch']}.999.99"
                walk.expect("fail", "CG101", {"cuda": release["cuda"]}, driver=driver)
    walk.done(at_least=1000)


def test_each_minor_compatibility_minimum_and_exception_is_a_boundary(walk):
    table = floors(walk)
    assert set(table) >= {11, 12, 13}
    for major, rule in table.items():
        series = [r["series"] for r in walk.read("cuda_driver")["releases"]]
        for cuda in {s for s in series if walk.numbers(s)[0] == major}:
            special = rule["exceptions"].get(cuda, {})
            for os, cpu in (("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64")):
                floor = special.get(f"{os}_{cpu}_min") or special.get(f"{os}_min") or rule[os]
                at = {"os": os, "cpu": cpu}
                walk.expect("fail", "CG101", {"cuda": cuda}, driver=walk.below(floor), **at)
                written = walk.as_driver(walk.numbers(floor))
                walk.expect("pass", "CG101", {"cuda": cuda}, driver=written, **at)
    walk.done(at_least=100)


def test_each_release_agrees_with_the_minimum_in_its_own_row(walk):
    for release in walk.read("cuda_driver")["releases"]:
        stated = release["minor_compat_min_linux"]
        if stated and "." in stated:
            assert walk.numbers(stated) == walk.numbers(floor_of(walk, release, "linux"))


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_toolkits_own_driver_bounds_the_limits_of_minor_compatibility(walk, system):
    os = numbered_as(system)
    for release in walk.read("cuda_driver")["releases"]:
        own, floor = release[f"{os}_toolkit_driver_min"], floor_of(walk, release, system)
        stack = {"cuda": release["cuda"], "arch": ["sm_80"]}
        if walk.numbers(release["cuda"])[0] < 11:
            walk.expect("not-applicable", "CG102", stack, driver="470.10.01", os=system, **ANY)
            continue
        if own is None:
            driver = walk.as_driver(walk.numbers(floor))
            branch = driver if os == "linux" else f"{walk.numbers(driver)[0]}.1"
            older = branch_cuda(walk, branch) < walk.numbers(release["series"])
            said = "warn" if older else "not-checked"
            walk.expect(said, "CG102", stack, driver=driver, os=system, **ANY)
            continue
        under = walk.numbers(walk.below(own)) >= walk.numbers(floor)
        limited = "warn" if under else "not-applicable"
        walk.expect(limited, "CG102", stack, driver=walk.below(own), os=system, **ANY)
        walk.expect("pass", "CG102", stack, driver=own, os=system, **ANY)
        walk.expect("pass", "CG102", stack, driver=walk.above(own), os=system, **ANY)
        beneath = walk.below(floor)
        walk.expect("not-applicable", "CG102", stack, driver=beneath, os=system, **ANY)
    walk.done(at_least=150)


def test_ptx_of_each_toolkit_is_compiled_by_the_branches_that_report_its_cuda(walk):
    releases = {r["series"]: r for r in walk.read("cuda_driver")["releases"]}
    for branch in walk.read("driver_branches")["branches"]:
        if branch["nvidia_smi_cuda"] is None:
            continue
        driver = f"{branch['branch']}.999.99"
        for series in releases:
            compiles = walk.numbers(series) <= walk.numbers(branch["nvidia_smi_cuda"])
            stack = {"cuda": series, "arch": ["compute_50"]}
            walk.expect("pass" if compiles else "fail", "CG202", stack, driver=driver, **ANY)
            walk.expect(
                "not-applicable", "CG202", {**stack, "arch": ["sm_80"]}, driver=driver, **ANY
            )
    walk.done(at_least=1000)


def test_ptx_newer_than_the_driver_fails_the_limits_too(walk):
    for release in walk.read("cuda_driver")["releases"]:
        floor, own = floor_of(walk, release, "linux"), release["linux_toolkit_driver_min"]
        if own is None or walk.numbers(release["cuda"])[0] < 11:
            continue
        if walk.numbers(floor) >= walk.numbers(own):
            continue
        stack = {"cuda": release["cuda"], "arch": ["compute_50"]}
        compiles = branch_cuda(walk, floor) >= walk.numbers(release["series"])
        walk.expect("warn" if compiles else "fail", "CG102", stack, driver=floor, **ANY)
    walk.done(at_least=25)


def test_on_a_branch_whose_cuda_is_not_published_newer_ptx_is_unknown(walk):
    branches = walk.read("driver_branches")["branches"]
    for branch in branches:
        if branch["nvidia_smi_cuda"] is None:
            older = [b for b in branches if b["branch"] < branch["branch"] and b["nvidia_smi_cuda"]]
            reach = walk.numbers(older[-1]["nvidia_smi_cuda"]) if older else (0, 0)
            for release in walk.read("cuda_driver")["releases"]:
                known = walk.numbers(release["series"]) <= reach
                stack = {"cuda": release["series"], "arch": ["compute_50"]}
                driver = f"{branch['branch']}.999.99"
                walk.expect("pass" if known else "unknown", "CG202", stack, driver=driver, **ANY)


def test_toolkits_that_never_were_are_unknown(walk):
    for special in walk.read("cuda_driver")["special_cases"]:
        if special.get("never_released"):
            walk.expect("unknown", "CG101", {"cuda": special["cuda"]}, driver="610.43.02")
    walk.done()


def test_updates_without_a_row_take_the_row_that_the_facts_name(walk):
    releases = {r["cuda"]: r for r in walk.read("cuda_driver")["releases"]}
    for special in walk.read("cuda_driver")["special_cases"]:
        if row := special.get("same_row_as"):
            own = releases[row]["linux_toolkit_driver_min"]
            stack = {"cuda": special["cuda"]}
            walk.expect("pass", "CG102", stack, driver=own)
            walk.expect("warn", "CG102", stack, driver=walk.below(own))
    walk.done()
