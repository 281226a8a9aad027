"""Every forward-compatibility package against every host branch, GPU segment and OS."""

from __future__ import annotations

ANY = {"gpu": "A100-SXM4-80GB"}


def hosts(walk, package):
    """Each host branch with a driver in it, and what the facts say of the package there."""
    own = str(package["libcuda_from_driver"])
    doubted = {b for seen in package.get("also_seen", ()) for b in seen["branches"]}
    doubted |= {d["branch"] for d in package.get("disputed", ())}
    for record in walk.read("driver_branches")["branches"]:
        branch = record["branch"]
        minimum = package.get("patch_minimums", {}).get(branch)
        driver = minimum or walk.as_driver((branch, 1, 1))
        if own.endswith(".x"):
            newer = branch >= int(own[:-2])
        else:
            newer = walk.numbers(driver) >= walk.numbers(own)
        if newer:
            yield driver, "fail"
        elif branch in doubted:
            yield driver, "unknown"
        else:
            yield driver, "pass" if branch in package["host_driver_branches"] else "fail"


def packages(walk):
    return walk.read("forward_compat")["packages"]


def compat(package):
    return {"cuda": package["cuda"], "cuda-compat": package["cuda"], "arch": ["compute_50"]}


def test_each_package_works_on_its_listed_host_branches_and_on_no_other(walk):
    for package in packages(walk):
        for driver, expected in hosts(walk, package):
            walk.expect(expected, "CG103", compat(package), driver=driver, **ANY)
    walk.done(at_least=600)


def test_a_usable_package_lifts_the_floor_and_compiles_its_ptx(walk):
    known = {r["series"] for r in walk.read("cuda_driver")["releases"]}
    for package in packages(walk):
        for driver, expected in hosts(walk, package):
            if expected == "pass" and package["cuda"] in known:
                walk.expect("pass", "CG101", compat(package), driver=driver, **ANY)
                walk.expect("pass", "CG202", compat(package), driver=driver, **ANY)
                walk.expect("pass|not-applicable", "CG102", compat(package), driver=driver, **ANY)
    walk.done(at_least=150)


def test_each_minimum_within_a_host_branch_is_a_boundary(walk):
    for package in packages(walk):
        for branch, minimum in package.get("patch_minimums", {}).items():
            own = str(package["libcuda_from_driver"])
            older = own.endswith(".x") or walk.numbers(minimum) < walk.numbers(own)
            if branch in package["host_driver_branches"] and older:
                walk.expect("fail", "CG103", compat(package), driver=walk.below(minimum), **ANY)
                walk.expect("pass", "CG103", compat(package), driver=minimum, **ANY)
                walk.expect("pass", "CG103", compat(package), driver=walk.above(minimum), **ANY)
    walk.done(at_least=20)


def test_a_host_driver_as_new_as_the_package_is_refused(walk):
    for package in packages(walk):
        own = str(package["libcuda_from_driver"])
        driver = own.replace(".x", ".10.01")
        walk.expect("fail", "CG103", compat(package), driver=driver, **ANY)
        walk.expect("fail", "CG103", compat(package), driver="999.10.01", **ANY)
    walk.done(at_least=50)


def test_each_package_is_for_the_published_segments_on_linux(walk):
    rule = next(r for r in walk.read("forward_compat")["rules"] if r["rule"] == "hardware")
    gpus = walk.read("gpus")["gpus"]
    first = {gpu["segment"]: gpu["name"] for gpu in reversed(gpus) if gpu["segment"]}
    assert len(first) >= 4
    for package in packages(walk):
        usable = [driver for driver, expected in hosts(walk, package) if expected == "pass"]
        for driver in usable:
            for segment, name in first.items():
                eligible = "pass" if segment in rule["segments"] else "fail"
                expected = "warn" if segment in rule["conditional_segments"] else eligible
                if segment == "jetson":  # no L4T release has these drivers
                    expected = "unknown"
                walk.expect(expected, "CG103", compat(package), driver=driver, gpu=name)
            walk.expect("unknown", "CG103", compat(package), driver=driver, gpu="8.0")
            walk.expect("fail", "CG103", compat(package), driver=driver, os="wsl", **ANY)
    walk.done(at_least=300)
