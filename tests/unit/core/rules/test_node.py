"""What a pool states of its nodes is judged; what it does not state costs and says nothing."""

import pytest

from compatgate.catalog import load_facts
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules import RULES

STACK = "cuda=12.4,arch=sm_61+sm_70+sm_75+sm_80+sm_90+sm_100"
OURS = [rule for rule in RULES if "CG110" <= rule.id <= "CG124"]


def ask_node(ask, pool, stack=STACK, **node):
    described = {"gpu": "A100-PCIe-80GB", "driver": "580.95.05", **pool}
    stated = {name.replace("_", "-"): value for name, value in node.items()}
    return ask({**described, "node": stated}, stack)


def found(verdict, rule):
    return [finding for finding in verdict.findings if finding.rule == rule]


CASES = [
    # what the nodes are, the rule, its outcomes, and words that it says
    ({}, {"kernel_modules": "open"}, "CG110", [], ""),
    ({"gpu": "P4"}, {"kernel_modules": "open"}, "CG110", ["fail"], "Pascal"),
    ({"gpu": "B200"}, {"kernel_modules": "proprietary"}, "CG110", ["fail"], "Blackwell"),
    ({"gpu": "sm_90"}, {"kernel_modules": "proprietary"}, "CG110", ["not-checked"], "product"),
    ({"gpu": "sm_90"}, {"kernel_modules": "open"}, "CG110", ["not-checked"], "product"),
    (
        {"driver": "510.47.03"},
        {"kernel_modules": "open"},
        "CG110",
        ["fail"],
        "came with branch 515",
    ),
    ({"driver": "625.10.01"}, {"kernel_modules": "proprietary"}, "CG110", ["fail"], "620 removed"),
    ({"driver": "615.71.09"}, {"kernel_modules": "proprietary"}, "CG110", ["unknown"], "disagree"),
    ({"os": "windows", "driver": "580.88"}, {"kernel_modules": "nouveau"}, "CG110", [], ""),
    ({}, {"gsp_firmware": "off"}, "CG111", ["not-checked"], "not stated"),
    ({}, {"gsp_firmware": "off", "kernel_modules": "proprietary"}, "CG111", [], ""),
    ({"gpu": "B200"}, {"gsp_firmware": "off"}, "CG111", ["fail"], "needs the open modules"),
    ({"gpu": "P4"}, {"gsp_firmware": "on"}, "CG111", ["warn"], "has no GSP"),
    ({"gpu": "H100-SXM5-80GB"}, {"fabric_manager": "580.82.07"}, "CG112", ["fail"], "any part"),
    ({"gpu": "H100-SXM5-80GB"}, {"fabric_manager": "580.95.05-1"}, "CG112", [], ""),
    ({"gpu": "H100-SXM5-80GB"}, {"fabric_manager": "580.95"}, "CG112", ["unknown"], "all parts"),
    ({"gpu": "H100-SXM5-80GB"}, {"fabric_manager": "4.2"}, "CG112", ["unknown"], "all parts"),
    ({"gpu": "H100-SXM5-80GB"}, {"dcgm": "4.4.2"}, "CG112", ["not-checked"], "not stated"),
    ({"gpu": "H100"}, {"fabric_manager": "570.86.15"}, "CG112", ["fail"], "580.95.05"),
    ({}, {"fabric_manager": "570.86.15"}, "CG112", ["not-checked"], "not needed"),
    (
        {"gpu": "GeForce-RTX-4090"},
        {"fabric_manager": "1.2"},
        "CG112",
        ["not-checked"],
        "not needed",
    ),
    ({"gpu": "GB200"}, {"fabric_manager": "1.2"}, "CG112", ["not-checked"] * 2, "switch trays"),
    ({"gpu": "GB200"}, {"imex": "580.82.07"}, "CG112", ["fail"], "IMEX 580.82.07"),
    (
        {},
        {"container_toolkit": "1.10.0"},
        "CG113",
        ["not-checked", "warn"],
        "container-mode is cdi",
    ),
    ({"gpu": "B200"}, {"dcgm": "3.3.9"}, "CG113", ["warn"], "4.0.0"),
    ({}, {"container_toolkit": "1.20.0"}, "CG115", [], ""),
    ({}, {"container_toolkit": "1.99.0"}, "CG115", ["not-checked"], "newer than 1.20.0"),
    ({}, {"container_toolkit": "1.17.7"}, "CG115", ["not-checked", "warn"], "Enroot"),
    ({}, {"dcgm": "3.2.6"}, "CG116", ["not-checked"], "3.2.6"),
    ({"driver": "440.33.01"}, {"dcgm": "4.4.2"}, "CG116", ["warn"], "450"),
    ({}, {"gpu_operator": "31.5.0"}, "CG117", ["not-checked"], "newest series"),
    ({"driver": "565.57.01"}, {"gpu_operator": "25.10.0"}, "CG117", ["warn"], "not an active"),
    ({"driver": "580.142"}, {"gpu_operator": "25.10.0"}, "CG117", [], ""),
    ({}, {"kernel": "6.20.0-rc3"}, "CG118", ["unknown"], "release candidate"),
    ({}, {"kernel": "9.1.2"}, "CG118", ["unknown"], "names kernels up to"),
    ({"driver": "470.256.02"}, {"kernel": "5.15.0"}, "CG118", [], ""),
    ({"driver": "535.216.03"}, {"kernel": "6.12.22"}, "CG118", ["unknown"], "does not deny"),
    ({}, {"distribution": "rhel-9.6"}, "CG119", [], ""),
    ({}, {"distribution": "talos-1.12"}, "CG119", ["warn"], "does not list talos-1.12"),
    ({"driver": "535.183.01"}, {"distribution": "rhel-9.6"}, "CG119", ["not-checked"], "535"),
    ({}, {"secure_boot": "off"}, "CG120", [], ""),
    ({}, {"secure_boot": "on"}, "CG120", ["not-checked"], "signed"),
    ({}, {"secure_boot": "on", "ofed": "3.2.1"}, "CG120", ["warn"], "DOCA"),
    ({}, {"peer_memory": "none"}, "CG121", [], ""),
    ({}, {"peer_memory": "dma-buf"}, "CG121", ["not-checked"], "flavour is not stated"),
    ({}, {"peer_memory": "nvidia-peermem"}, "CG121", ["not-checked"], "OFED"),
    ({"platform": "dgx/h100"}, {"acs": "on"}, "CG122", ["warn"], "root complex"),
    ({"platform": "aws/p5"}, {"iommu": "on"}, "CG122", ["not-checked"], "do not switch ACS off"),
    ({}, {"iommu": "passthrough", "acs": "off"}, "CG122", [], ""),
    ({}, {"persistence": "off"}, "CG123", [], ""),
    ({}, {"vbios": "96.00.89.00.01", "efa": "1.38.0"}, "CG124", ["not-checked"] * 2, "VBIOS"),
]


def test_each_part_of_a_node_is_judged_by_its_rule(ask):
    wrong = []
    for pool, node, rule, outcomes, words in CASES:
        findings = found(ask_node(ask, pool, **node), rule)
        said = " ".join(finding.message for finding in findings)
        if sorted(one.outcome for one in findings) != sorted(outcomes) or words not in said:
            wrong.append((pool, node, rule, [(one.outcome, one.message) for one in findings]))
    assert wrong == []


def test_no_rule_applies_and_no_table_is_read_where_nothing_is_stated(
    pool_of, stack_of, monkeypatch
):
    from compatgate.core.matrix import Matrix
    from compatgate.core.request import Target

    monkeypatch.setattr("compatgate.catalog._loaded", None)
    facts = load_facts([])
    pool = pool_of("driver=580.95.05,gpu=H100-SXM5-80GB")
    case = RuleContext(
        stack_of(STACK), pool, Target("", (pool,)), facts, Matrix(), today="2026-11-21", now=1.0
    )
    assert {rule.id: rule.answer(case) for rule in OURS} == {r.id: "not-applicable" for r in OURS}
    assert not {"kernel_modules", "node_parts", "kernel_support"} & facts.__dict__.keys()


def test_a_pool_that_states_its_nodes_rightly_passes(ask):
    verdict = ask_node(
        ask,
        {"gpu": "H100-SXM5-80GB", "platform": "bare-metal"},
        kernel_modules="open",
        gsp_firmware="on",
        fabric_manager="580.95.05",
        container_toolkit="1.20.0",
        container_mode="cdi",
        dcgm="4.6.0",
        kernel="6.8.0-45-generic",
        distribution="ubuntu-24.04",
        peer_memory="dma-buf",
        secure_boot="off",
        persistence="on",
        iommu="passthrough",
        acs="off",
    )
    assert verdict.findings == ()
    assert verdict.verdict == "pass"


@pytest.mark.parametrize(
    ("pool", "node", "rule", "fixes"),
    [
        ({"gpu": "P4"}, {"kernel_modules": "open"}, "CG110", [{"kernel-modules": "proprietary"}]),
        (
            {"gpu": "H100-SXM5-80GB"},
            {"fabric_manager": "580.82.07"},
            "CG112",
            [{"fabric-manager": "580.95.05"}, {"driver": "580.82.07"}],
        ),
        (
            {},
            {"peer_memory": "dma-buf", "kernel_modules": "proprietary"},
            "CG121",
            [{"kernel-modules": "open"}, {"peer-memory": "nvidia-peermem"}],
        ),
        ({}, {"container_toolkit": "1.17.7"}, "CG115", [{"container-toolkit": ">=1.19.1"}]),
    ],
)
def test_a_fix_of_a_node_was_evaluated(ask, pool, node, rule, fixes):
    finding = found(ask_node(ask, pool, **node), rule)[0]
    assert [fix.set for fix in finding.fixes] == fixes


def test_a_raised_driver_takes_fabric_manager_and_imex_along(ask):
    pool = {"gpu": "H100-SXM5-80GB", "driver": "525.60.13"}
    verdict = ask_node(ask, pool, "cuda=13.0,arch=sm_90", fabric_manager="525.60.13")
    (finding,) = found(verdict, "CG101")
    first = finding.fixes[0]
    assert first.set == {"driver": ">=580.65.06", "fabric-manager": ">=580.65.06"}
    assert "Fabric Manager to the same version" in first.message


def test_a_driver_roll_out_that_forgets_fabric_manager_fails(ask):
    pool = {"gpu": "H100-SXM5-80GB", "driver": "580.82.07", "node": {"fabric-manager": "580.82.07"}}
    alone = ask(pool, STACK, changes={"driver": "580.95.05"})
    both = {"driver": "580.95.05", "fabric-manager": "580.95.05"}
    assert [finding.rule for finding in alone.failing] == ["CG112"]
    assert ask(pool, STACK, changes=both).verdict == "pass"


def test_container_toolkit_1_17_4_matters_only_where_an_image_needs_its_libraries(ask):
    stack = "cuda=12.2,cuda-compat=12.2,cuda-compat-use={},arch=sm_80"
    for driver, use, toolkit, fails in (
        ("470.256.02", "newer", "1.17.4", True),
        ("470.256.02", "newer", "1.17.3", False),
        ("470.256.02", "always", "1.17.4", False),
        ("535.183.01", "newer", "1.17.4", False),
    ):
        verdict = ask_node(ask, {"driver": driver}, stack.format(use), container_toolkit=toolkit)
        assert bool(found(verdict, "CG114")) is fails, (driver, use, toolkit)
