"""Every published boundary of a platform, and of a Jetson's releases, is where it is published."""

from itertools import product
from pathlib import Path

import pytest
from tables import read_table

from compatgate.check.question import read_pool

FACTS = Path(__file__).parents[2] / "matrix" / "facts"
CASES = read_table(Path(__file__).parent / "platforms.yaml")


def read(name):
    return read_table(FACTS / f"{name}.yaml")


def outcomes_of(verdict):
    found = {}
    for finding in verdict.findings:
        found.setdefault(finding.rule, set()).add(finding.outcome)
    return found


def test_each_case_comes_out_right(ask):
    wrong = []
    for row in CASES:
        verdict = ask(read_pool(row["pool"]), row["stack"])
        found = outcomes_of(verdict)
        offered = [fix.set for finding in verdict.findings for fix in finding.fixes]
        objecting = {rule for rule, said in found.items() if said & {"fail", "unknown", "warn"}}
        right = (
            row.get("verdict", verdict.verdict) == verdict.verdict
            and all(said in found.get(rule, ()) for rule, said in row.get("rules", {}).items())
            and objecting.isdisjoint(row.get("absent", ()))
            and ("fix" not in row or any(row["fix"].items() <= one.items() for one in offered))
        )
        if not right:
            wrong.append((row["case"], verdict.verdict, found, offered))
    assert wrong == []


def neighbours(version):
    """Return a version just below a bound and one just above."""
    parts = [int(part) for part in version.split(".")]
    below = [*parts[:-1], parts[-1] - 1] if parts[-1] else [parts[0] - 1, 99]
    return ".".join(map(str, below)), ".".join(map(str, [*parts, 1][:3]))


def pool_on(platform, part, value):
    gpu = (platform.get("gpus") or ["H100-SXM5-80GB"])[0]
    pool = {"gpu": gpu, "platform": platform["name"], "driver": "580.159.03"}
    pool["cpu"] = platform.get("cpu", "x86_64")
    node = {}
    if part == "driver":
        pool["driver"] = value if "." in value else f"{value}.00"
    elif part not in ("cuda", "cudnn", "nccl"):
        node[part] = value
    return pool, node


def test_each_limit_ends_where_it_is_published(ask):
    document = read("platforms")
    platforms = {row["name"]: row for row in document["platforms"]}
    walked, problems = 0, []
    for limit in document["limits"]:
        part = limit["component"]
        rule = "CG127" if part == "driver" else "CG129"
        tries = []
        if "minimum" in limit:
            below, _ = neighbours(limit["minimum"])
            tries += [(limit["minimum"], True), (below, False)]
        if "below" in limit:
            below, above = neighbours(limit["below"])
            tries += [(f"{below}.99.01" if "." not in below else below, True), (above, False)]
        if "maximum" in limit:
            last = limit["maximum"].split(".")
            last[-1] = f"{int(last[-1]) + 1:02}"
            tries += [(limit["maximum"], True), (".".join(last), False)]
        tries += [(value, False) for value in limit.get("refuses", ())]
        for name, (value, allowed) in product(limit["platforms"], tries):
            pool, node = pool_on(platforms[name], part, value)
            if uses := limit.get("uses"):
                node[uses] = "25.10.0" if uses == "gpu-operator" else "1.47.0"
            stack = {"cuda": "13.0"}
            if part in ("cuda", "cudnn", "nccl"):
                stack[part] = value
            verdict = ask({**pool, "node": node}, stack, with_fixes=False)
            said = [f for f in verdict.findings if f.rule == rule and limit["means"] in f.message]
            hard = limit["severity"] == "fail" and limit["confidence"] != "derived"
            softened = "disputed" in limit and "uses" not in limit
            expected = "warn" if limit["severity"] == "warn" else "unknown" if softened else "fail"
            if allowed == bool(said) or (said and hard and said[0].outcome != expected):
                problems.append((limit["id"], name, value, allowed, [f.outcome for f in said]))
            walked += 1
    assert problems == []
    assert walked >= 60


def test_a_jetson_runs_what_its_release_and_its_packages_run(ask):
    """Hold every release and CUDA against the tables as they stand in the file."""
    document = read("jetson")
    gpus = {row["name"]: row["gpus"][0] for row in document["devices"]}
    toolkits = ["10.2", "11.4", "11.8", "12.0", "12.2", "12.3", "12.4", "12.6", "12.8", "12.9"]
    toolkits += ["13.0", "13.1", "13.2", "13.3"]
    upgrades = {row["l4t"]: row["compatible"] for row in document["upgrades"]}
    runs = {(row["l4t"], row["libcuda"]): row for row in document["runs"]}
    problems, walked = [], 0
    for release in document["releases"]:
        series, own = release["l4t"].split(".")[0], pair(release["cuda"])
        for device, cuda in product((release["devices"] or [])[:1], toolkits):
            table = runs.get((series, release["cuda"]), {"runs": [], "refuses": []})
            if pair(cuda) <= own:
                expected = None
            elif cuda in table["runs"]:
                expected = "warn"
            elif cuda in table["refuses"] or pair(cuda)[0] != own[0]:
                expected = "fail"
            else:
                expected = "warn" if cuda in upgrades[series] else "unknown"
            pool = {"gpu": gpus[device], "node": {"l4t": release["l4t"]}}
            found = outcomes_of(ask(pool, {"cuda": cuda}, with_fixes=False)).get("CG131")
            if found != (expected and {expected}):
                problems.append((release["l4t"], device, cuda, expected, found))
            walked += 1
        for cuda in upgrades[series]:
            if pair(cuda) > own and release["devices"]:
                pool = {"gpu": gpus[release["devices"][0]], "node": {"l4t": release["l4t"]}}
                stack = {"cuda": cuda, "cuda-compat": cuda}
                found = outcomes_of(ask(pool, stack, with_fixes=False))
                if "CG131" in found or "CG103" in found:
                    problems.append((release["l4t"], cuda, "with its package", found))
    assert problems == []
    assert walked > 350


def pair(cuda):
    major, minor = cuda.split(".")[:2]
    return int(major), int(minor)


def test_each_release_supports_its_devices_and_no_others(ask):
    document = read("jetson")
    problems = []
    for release, device in product(document["releases"], document["devices"]):
        if release["devices"] is None:
            continue
        pool = {"gpu": device["gpus"][0], "node": {"l4t": release["l4t"]}}
        found = outcomes_of(ask(pool, {"cuda": release["cuda"]}, with_fixes=False)).get("CG130")
        fails = found is not None and found <= {"fail", "unknown"}
        if fails == (device["name"] in release["devices"]):
            problems.append((release["l4t"], device["name"], found))
    assert problems == []


@pytest.mark.parametrize("row", [r for r in read("jetson")["releases"] if r["driver"]][::2])
def test_the_driver_alone_tells_the_cuda_of_a_jetson(row, ask):
    gpu = {"orin": "Orin (nvgpu)", "thor": "NVIDIA Thor"}[row["devices"][0]]
    pool = {"gpu": gpu, "driver": row["driver"]}
    assert "CG131" not in outcomes_of(ask(pool, {"cuda": row["cuda"]}))
