"""Every driver branch around its end of life, and every GPU at its first and last branch."""

from __future__ import annotations

from calendar import monthrange
from datetime import date, timedelta

import pytest


def last_day(text):
    if len(text) == len("2026-11-21"):
        return date.fromisoformat(text)
    year, month = map(int, text.split("-"))
    return date(year, month, monthrange(year, month)[1])


def end_of_life(branch):
    """The earlier one where editions differ."""
    stated = [branch["eol"], *(c["eol"] for c in branch.get("eol_conflict", ()))]
    return min((last_day(str(day)) for day in stated if day), default=None)


def test_each_branch_warns_from_ninety_days_before_its_end_of_life_on(walk):
    for branch in walk.read("driver_branches")["branches"]:
        if end := end_of_life(branch):
            driver = f"{branch['branch']}.10.01"
            for days, expected in ((91, "pass"), (90, "warn"), (0, "warn"), (-1, "warn")):
                today = (end - timedelta(days=days)).isoformat()
                walk.expect(expected, "CG104", {"cuda": "12.4"}, driver=driver, today=today)
    walk.done(at_least=40)


def test_the_warning_says_whether_the_end_has_passed(walk):
    from compatgate.core.rules import BY_ID

    for branch in walk.read("driver_branches")["branches"]:
        if end := end_of_life(branch):
            for day, word in ((end, "reaches"), (end + timedelta(days=1), "past")):
                case = walk.case(
                    {"cuda": "12.4"}, driver=f"{branch['branch']}.10.01", today=day.isoformat()
                )
                problem = BY_ID["CG104"].check(case)
                assert word in problem.message
                assert end.isoformat() in problem.message


def test_a_branch_without_a_published_date_warns_only_where_it_is_said_to_have_ended(walk):
    for branch in walk.read("driver_branches")["branches"]:
        if end_of_life(branch) is None:
            expected = "warn" if branch.get("ended") else "not-checked"
            driver = f"{branch['branch']}.10.01"
            walk.expect(expected, "CG104", {"cuda": "12.4"}, driver=driver)
    walk.done(at_least=10)


def test_each_gpu_is_driven_from_its_first_branch_to_its_last(walk):
    known = [b["branch"] for b in walk.read("driver_branches")["branches"]]
    lasts = {
        c["compute_capability"]: c["last_driver_branch"]
        for c in walk.read("cuda_arch_support")["compute_capabilities"]
    }
    gpus = walk.read("gpus")["gpus"]
    for gpu in gpus:
        first = gpu["first_driver_branch"]
        own = walk.numbers(gpu["compute_capability"])
        newer = [
            one["first_driver_branch"]
            for one in gpus
            if one["first_driver_branch"] and walk.numbers(one["compute_capability"]) > own
        ]
        last = gpu["last_driver_branch"] or lasts.get(gpu["compute_capability"])
        for branch in known:
            outside = (first and branch < first) or (last and branch > last)
            listed = [walk.numbers(driver)[0] for driver in gpu.get("first_drivers", ())]
            shown = "not-checked" if newer and branch >= min(newer) else "unknown"
            inside = "pass" if first else shown
            inside = "warn" if listed and branch < min(listed) else inside
            expected = "fail" if outside else inside
            if gpu["segment"] == "jetson":  # its driver comes with L4T: CG130 judges it
                expected = "not-applicable"
            driver = f"{branch}.999.99"
            walk.expect(expected, "CG105", {"cuda": "12.4"}, driver=driver, gpu=gpu["name"])
    walk.done(at_least=3000)


def test_a_bare_capability_is_driven_to_the_last_branch_of_its_architecture(walk):
    known = [b["branch"] for b in walk.read("driver_branches")["branches"]]
    for fact in walk.read("cuda_arch_support")["compute_capabilities"]:
        last = fact["last_driver_branch"]
        for branch in known:
            expected = "fail" if last and branch > last else "not-checked"
            at = {"driver": f"{branch}.999.99", "gpu": fact["compute_capability"]}
            walk.expect(expected, "CG105", {"cuda": "12.4"}, **at)
    walk.done(at_least=500)


def test_each_mig_slice_needs_the_driver_that_makes_it(walk):
    from compatgate.core.gpus import mig_profiles, resolve_gpu

    for gpu in walk.read("gpus")["gpus"]:
        if not gpu["mig_capable"]:
            continue
        profiles = mig_profiles(resolve_gpu(gpu["name"], walk.facts.gpus)) or ("1g.10gb",)
        name = f"{gpu['name']}-MIG-{profiles[0]}"
        minimum = gpu.get("mig_min_driver")
        if minimum is None:
            known = "unknown" if gpu["segment"] == "jetson" else "not-checked"
            walk.expect(known, "CG106", {"cuda": "12.4"}, driver="580.65.06", gpu=name)
            continue
        at = walk.as_driver(walk.numbers(minimum))
        walk.expect("fail", "CG106", {"cuda": "12.4"}, driver=walk.below(minimum), gpu=name)
        walk.expect("pass", "CG106", {"cuda": "12.4"}, driver=at, gpu=name)
        walk.expect("not-applicable", "CG106", {"cuda": "12.4"}, driver=at, gpu=gpu["name"])
    walk.done(at_least=30)


def test_windows_packages_have_the_limits_of_the_branch_that_they_are_of(walk):
    by_name = {gpu["name"]: gpu for gpu in walk.read("gpus")["gpus"]}
    for row in walk.read("driver_branches")["windows"]:
        for name in ("GeForce-RTX-4090", "GeForce-GTX-1060", "GeForce-GTX-480", "GeForce-GTX-860M"):
            gpu = by_name[name]
            first = gpu["first_driver_branch"] or 0
            last = gpu.get("last_windows_branch") or gpu["last_driver_branch"] or 999
            inside = "pass" if first else "not-checked|unknown"
            expected = inside if first <= row["branch"] <= last else "fail"
            for number in (row["first"], row["last"]):
                driver = f"{number}.99"
                at = {"driver": driver, "gpu": name, "os": "windows"}
                walk.expect(expected, "CG105", {"cuda": "11.4"}, **at)
    walk.done(at_least=250)


CASES = [
    # rule, expected, what the pool has
    ("CG105", "fail", {"driver": "560.94", "gpu": "GeForce-RTX-5090", "os": "windows"}),
    ("CG105", "fail", {"driver": "595.71", "gpu": "GeForce-GTX-1060", "os": "wsl"}),
    ("CG105", "warn", {"driver": "570.65", "gpu": "GeForce-RTX-5090", "os": "windows"}),
    ("CG105", "unknown", {"driver": "900.10", "gpu": "GeForce-RTX-5090", "os": "windows"}),
    ("CG105", "fail", {"driver": "460.89", "gpu": "GeForce-RTX-3090", "os": "wsl"}),
    ("CG105", "unknown", {"driver": "471.11", "gpu": "GeForce-RTX-3090", "os": "wsl"}),
    ("CG105", "pass", {"driver": "496.49", "gpu": "GeForce-RTX-3090", "os": "wsl"}),
    ("CG105", "warn", {"driver": "535.104.05", "gpu": "H200-SXM5"}),
    ("CG105", "warn", {"driver": "550.54.15", "gpu": "H200-SXM5"}),
    ("CG105", "pass", {"driver": "550.90.07", "gpu": "H200-SXM5"}),
    ("CG105", "fail", {"driver": "470.256.02", "gpu": "GeForce-GTX-480"}),
    ("CG203", "fail", {"driver": "470.256.02", "gpu": "sm_21"}),
    ("CG118", "fail", {"driver": "470.256.02", "node": {"kernel": "6.12.1"}}),
    ("CG118", "unknown", {"driver": "470.239.06", "node": {"kernel": "6.12.1"}}),
    ("CG118", "pass", {"driver": "470.223.02", "node": {"kernel": "6.5.0"}}),
]


@pytest.mark.parametrize(("rule", "expected", "pool"), CASES)
def test_a_driver_is_judged_by_its_system_its_gpu_and_its_kernel(walk, rule, expected, pool):
    walk.expect(expected, rule, {"cuda": "11.4"}, **{"gpu": "T4", **pool})
    walk.done()


@pytest.mark.parametrize(
    ("cuda", "driver", "expected"),
    [
        ("8.0.44", "367.57", "pass"),
        ("8.0.61", "367.57", "fail"),
        ("8.0", "367.57", "pass"),
        ("9.2.88", "396.26", "pass"),
        ("9.2.148", "396.26", "fail"),
        ("9.1.85", "387.26", "pass"),
        ("7.5.18", "352.31", "pass"),
        ("7.0.28", "346.35", "fail"),
        ("10.2.300", "440.33.01", "pass"),
    ],
)
def test_before_cuda_11_each_release_has_a_driver_of_its_own(walk, cuda, driver, expected):
    walk.expect(expected, "CG101", {"cuda": cuda}, driver=driver, gpu="GeForce-GTX-1080")
    walk.done()
