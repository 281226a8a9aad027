"""Every published boundary of a node's parts: modules, fabric, tools, kernels, distributions."""

from __future__ import annotations

from compatgate.core.node import parse_node_version
from compatgate.core.rules import BY_ID
from compatgate.core.versions import parse_version

STACK = {"cuda": "12.4"}
_EXAMPLES = {"peer-memory": "dma-buf", "ofed": "24.10-0.7.0.0"}


def test_each_gpu_takes_the_flavours_that_its_architecture_takes(walk):
    rows = walk.read("kernel_modules")["architectures"]
    by_name = {name: row for row in rows for name in row.get("gpus", ())}
    by_capability = {
        capability: row for row in rows if "gpus" not in row for capability in row["capabilities"]
    }
    for gpu in walk.read("gpus")["gpus"]:
        row = by_name.get(gpu["name"]) or by_capability.get(gpu["compute_capability"])
        if gpu["segment"] == "jetson":
            continue
        for flavour in ("open", "proprietary"):
            expected = "fail" if row[flavour] == "must-not" else "pass"
            driver = "580.95.05" if (row["last_branch"] or 999) >= 580 else "470.256.02"
            node = {"kernel-modules": flavour}
            walk.expect(expected, "CG110", STACK, driver=driver, gpu=gpu["name"], node=node)
        node = {"kernel-modules": "nouveau"}
        walk.expect("fail", "CG110", STACK, driver=driver, gpu=gpu["name"], node=node)
    walk.done(at_least=600)


def test_each_range_of_branches_has_the_flavours_that_it_is_said_to_have(walk):
    for row in walk.read("kernel_modules")["branches"]:
        first = f"{max(row['first'], 450)}.10.01"
        last = f"{row['last'] or 640}.10.01"
        opened = {"none": "fail", "datacenter": "pass", "yes": "pass"}[row["open"]]
        closed = {"disputed": "unknown", "removed": "fail"}.get(row["proprietary"], "pass")
        for driver in (first, last):
            for flavour, expected in (("open", opened), ("proprietary", closed)):
                node = {"kernel-modules": flavour}
                gpu = "A100-SXM4-80GB"
                walk.expect(expected, "CG110", STACK, driver=driver, gpu=gpu, node=node)
        if row["open"] == "datacenter":
            node, gpu = {"kernel-modules": "open"}, "GeForce-RTX-3090"
            walk.expect("warn", "CG110", STACK, driver=last, gpu=gpu, node=node)
    walk.done(at_least=24)


def test_gsp_firmware_is_on_where_the_modules_cannot_do_without(walk):
    for row in walk.read("kernel_modules")["architectures"]:
        if row["gsp"] is None:
            continue
        gpu = row.get("gpus", [f"sm_{row['capabilities'][0].replace('.', '')}"])[0]
        off = "fail" if row["proprietary"] == "must-not" else "pass"
        on = "pass" if row["gsp"] else "warn"
        for value, expected in (("off", off), ("on", on)):
            node = {"gsp-firmware": value, "kernel-modules": "proprietary"}
            walk.expect(expected, "CG111", STACK, driver="580.95.05", gpu=gpu, node=node)
        if row["open"] != "must-not":
            node = {"gsp-firmware": "off", "kernel-modules": "open"}
            walk.expect("fail", "CG111", STACK, driver="580.95.05", gpu=gpu, node=node)
    walk.done(at_least=24)


def test_each_fabric_manager_goes_with_its_driver_and_with_no_other(walk):
    pairs = walk.read("node_components")["fabric_pairs"]
    for pair, other in zip(pairs, [*pairs[1:], pairs[0]], strict=True):
        driver, gpu = pair["driver"], "A100-SXM4-80GB"
        for version, expected in (
            (pair["fabric_manager"], "pass"),
            (f"{driver}-1", "pass"),
            (other["fabric_manager"], "fail"),
        ):
            node = {"fabric-manager": version}
            walk.expect(expected, "CG112", STACK, driver=driver, gpu=gpu, node=node)
    assert len(pairs) >= 40
    walk.done(at_least=120)


def test_each_system_is_judged_by_the_services_that_it_runs(walk):
    for row in walk.read("node_components")["fabric_systems"]:
        for gpu in row.get("gpus", ()):
            for part, key in (("fabric-manager", "fabric_manager"), ("imex", "imex")):
                expected = "not-checked" if row[key] in ("no", "switch-trays") else "fail"
                node = {part: "580.82.07", "fabric-manager": "580.82.07"}
                node["fabric-manager"] = "580.95.05" if part == "imex" else "580.82.07"
                if part == "imex" and row["fabric_manager"] in ("no", "switch-trays"):
                    node.pop("fabric-manager")
                walk.expect(expected, "CG112", STACK, driver="580.95.05", gpu=gpu, node=node)
            walk.expect(
                "pass|not-applicable|not-checked",
                "CG112",
                STACK,
                driver="580.95.05",
                gpu=gpu,
                node={"kernel": "6.8.0"},
            )
    walk.done(at_least=80)


def test_each_tool_is_new_enough_from_its_published_minimum_on(walk):
    for need in walk.read("node_components")["needs"]:
        when = need["when"]
        capability = when.get("capabilities", ["8.0"])[0].replace(".", "")
        gpu = when.get("gpus", [f"sm_{capability}"])[0]
        gpu = "A100-SXM4-80GB-MIG-1g.10gb" if when.get("mig") else gpu
        node = {name: values[0] for name, values in when.get("node", {}).items()}
        major, minor, patch = (int(part) for part in need["needs"].split("."))
        before = f"{major}.{minor}.{patch - 1}" if patch else f"{major}.{max(minor - 1, 0)}.99"
        before = f"{major - 1}.9.9" if not patch and not minor else before
        for version, expected in ((before, need["outcome"]), (need["needs"], "pass")):
            stated = {**node, need["component"]: version}
            driver = when.get("driver_from", "470.256.02")
            os = when.get("os", ["linux"])[0]
            walk.expect(expected, "CG113", STACK, driver=driver, gpu=gpu, node=stated, os=os)
    walk.done(at_least=24)


def test_each_defect_is_found_in_its_releases_and_not_after(walk):
    for defect in walk.read("node_components")["defects"]:
        when = defect.get("when", {})
        gpu = when.get("gpus", ["A100-SXM4-80GB"])[0]
        gpu = "A100-SXM4-80GB-MIG-1g.10gb" if when.get("mig") else gpu
        node = {name: values[0] for name, values in when.get("node", {}).items()}
        first = defect["only"][0] if "only" in defect else defect.get("first", "1.10.0")
        expected = "not-checked|warn" if "where" in defect else defect["outcome"]
        if defect["component"] == "driver":
            kernel = next((k["first"] for k in when.get("kernels", ())), "6.8")
            used = {name: _EXAMPLES.get(name, "1.0") for name in when.get("uses", ())}
            capability = when.get("capabilities", ["8.0"])[0]
            gpu = "GeForce-RTX-4090" if when.get("segments") else gpu
            gpu = gpu if gpu != "A100-SXM4-80GB" else f"sm_{capability.replace('.', '')}"
            node = {"kernel": kernel, **used, **node}
            driver = first if first != "1.10.0" else "580.95.05"
            walk.expect(expected, "CG115", STACK, driver=driver, gpu=gpu, node=node)
            continue
        stated = {**node, defect["component"]: first}
        walk.expect(expected, "CG115", STACK, driver="580.95.05", gpu=gpu, node=stated)
        if defect["fixed"]:
            stated[defect["component"]] = defect["fixed"]
            case = walk.case(STACK, driver="580.95.05", gpu=gpu, node=stated)
            answer = BY_ID["CG115"].check(case)
            said = "" if isinstance(answer, str) else " ".join(one.message for one in answer)
            assert (defect.get("cve") or defect["problem"]) not in said, defect["id"]
    walk.done(at_least=25)


def test_dcgm_supports_drivers_from_its_minimum_on(walk):
    for row in walk.read("node_components")["dcgm_drivers"]:
        for gpu, floor in (
            ("A100-PCIe-40GB", row["driver"]),
            ("A100-SXM4-40GB", row.get("driver_nvswitch", row["driver"])),
        ):
            node = {"dcgm": row["first"]}
            for driver, expected in ((walk.as_driver(walk.numbers(floor)), "pass"),):
                walk.expect(expected, "CG116", STACK, driver=driver, gpu=gpu, node=node)
            walk.expect("warn", "CG116", STACK, driver=walk.below(floor), gpu=gpu, node=node)
    walk.done(at_least=16)


def test_each_gpu_operator_takes_what_its_series_recommends(walk):
    table = walk.read("node_components")
    series = {row["series"]: row for row in table["gpu_operator_series"]}
    assert len(table["gpu_operator"]) >= 20
    for release in table["gpu_operator"]:
        row = series[release["version"].rpartition(".")[0]]
        node = {"gpu-operator": release["version"]}
        for driver in row["recommended"]:
            walk.expect("pass", "CG117", STACK, driver=driver, gpu="A100-PCIe-40GB", node=node)
        if release["driver_default"] not in row["recommended"]:
            driver = release["driver_default"]
            walk.expect("warn", "CG117", STACK, driver=driver, gpu="A100-PCIe-40GB", node=node)
        walk.expect("warn", "CG117", STACK, driver="460.32.03", gpu="A100-PCIe-40GB", node=node)
    walk.done(at_least=70)


def test_each_branch_needs_the_kernel_that_its_source_names(walk):
    for row in walk.read("kernel_support")["minimum_kernel"]:
        driver = f"{row['branch']}.999.01"
        major, minor = (int(part) for part in row["kernel"].split("."))
        before = f"{major}.{minor - 1}.99"
        for kernel, expected in ((row["kernel"], "pass|not-checked"), (before, "fail")):
            node = {"kernel": f"{kernel}-generic"}
            walk.expect(expected, "CG118", STACK, driver=driver, gpu="T4", node=node)
    walk.done(at_least=24)


def test_a_kernel_is_known_up_to_the_newest_that_the_source_names(walk):
    table = walk.read("kernel_support")
    failed = walk.facts.kernel_support.failures
    listed = {
        (row["branch"], ".".join(row["kernel"].split(".")[:2]))
        for row in table["validated_kernels"]
    }
    assert len(table["named_kernels"]) + len(table["validated_kernels"]) >= 40
    for row in table["named_kernels"]:
        branch = int(row["driver"].split(".")[0])
        driver, kernel = parse_version("driver", row["driver"]), parse_node_version(row["kernel"])
        if any(one.drivers.contains(driver) and one.kernels.contains(kernel) for one in failed):
            continue  # judged by what was seen
        major, minor = (int(part) for part in row["kernel"].split("."))
        node = {"kernel": f"{row['kernel']}.0"}
        expected = "pass|fail" if branch in (530, 550) else "pass"
        walk.expect(expected, "CG118", STACK, driver=row["driver"], gpu="T4", node=node)
        if row.get("beta") or (branch, f"{major}.{minor + 1}") in listed:
            continue
        node = {"kernel": f"{major + 9}.0.1"}
        walk.expect("unknown|fail", "CG118", STACK, driver=row["driver"], gpu="T4", node=node)
    for row in table["validated_kernels"]:
        driver = f"{row['branch']}.999.01"
        node = {"kernel": row["kernel"], "distribution": row["distribution"]}
        walk.expect("pass", "CG118", STACK, driver=driver, gpu="T4", cpu=row["cpu"], node=node)
    walk.done(at_least=300)


def test_what_was_seen_not_to_build_is_unknown_and_mended_by_the_driver_that_mends_it(walk):
    failures = walk.facts.kernel_support.failures
    for one in failures:
        driver = next(v for v in (one.drivers.first, *one.drivers.only) if v)
        kernel = next(v for v in (one.kernels.first, *one.kernels.only) if v)
        at = {"gpu": "T4", "node": {"kernel": kernel.text}}
        walk.expect("unknown|fail", "CG118", STACK, driver=driver.text, **at)
        if one.flavour:
            at["node"] = {"kernel": kernel.text, "kernel-modules": one.flavour}
            walk.expect("fail", "CG118", STACK, driver=driver.text, **at)
        again = (f.drivers.contains(one.fixed) and f.kernels.contains(kernel) for f in failures)
        if one.fixed and not any(again):
            walk.expect("pass", "CG118", STACK, driver=one.fixed.text, **at)
    walk.done(at_least=10)


def test_each_branch_lists_its_distributions_and_no_other(walk):
    for row in walk.read("kernel_support")["distributions"]:
        driver = f"{row['branch']}.999.01"
        for name in row["distributions"]:
            for stated in (name, f"{name}.9"):
                node = {"distribution": stated}
                walk.expect("pass", "CG119", STACK, driver=driver, gpu="T4", node=node)
        node = {"distribution": "plan9-4"}
        walk.expect("warn", "CG119", STACK, driver=driver, gpu="T4", node=node)
    walk.done(at_least=150)


def test_each_way_of_rdma_works_from_its_minimums_on(walk):
    for row in walk.read("kernel_support")["rdma"]:
        node = {"peer-memory": row["path"], "ofed": "24.10", "kernel-modules": "open"}
        good = {"driver": "580.95.05", "gpu": "T4"}
        walk.expect("pass", "CG121", STACK, node=node, **good)
        closed = {**node, "kernel-modules": "proprietary"}
        walk.expect("fail" if row["modules"] else "pass", "CG121", STACK, node=closed, **good)
        old = {**good, "driver": walk.below(row["driver"])}
        walk.expect("fail", "CG121", STACK, node=node, **old)
        if row["kernel"]:
            for kernel, expected in ((row["kernel"], "pass"), ("5.11.22", "fail")):
                stated = {**node, "kernel": kernel}
                walk.expect(expected, "CG121", STACK, node=stated, **good)
        if row["least_capability"]:
            older = {**good, "gpu": "V100-SXM2-32GB"}
            walk.expect("fail", "CG121", STACK, node=node, **older)
    walk.done(at_least=9)
