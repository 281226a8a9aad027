"""The rules as a whole: their ids and names are contracts, their docstrings are documentation."""

import pytest

from compatgate.core.rules import BY_ID, BY_NAME, RULES

DESIGN = {
    "CG101": "driver-too-old",
    "CG102": "minor-compat-limits",
    "CG103": "forward-compat",
    "CG104": "driver-branch-eol",
    "CG105": "driver-gpu",
    "CG201": "no-kernel-image",
    "CG202": "ptx-toolchain",
    "CG203": "toolkit-arch",
    "CG301": "cudnn-cuda",
    "CG302": "cudnn-gpu",
    "CG303": "cudnn-driver",
    "CG401": "framework-cuda",
    "CG402": "framework-cudnn",
    "CG403": "framework-nccl",
    "CG404": "framework-python",
    "CG405": "framework-arch",
    "CG501": "nccl-cuda",
    "CG601": "require-cuda",
    "CG701": "known-issue",
    "CG801": "not-blessed",
    "CG802": "revoked",
    "CG803": "deprecated",
    "CG811": "canary-missing",
    "CG812": "canary-stale",
    "CG813": "canary-failed",
    "CG821": "waived",
    "CG901": "incomplete",
}


@pytest.mark.parametrize(("rule_id", "name"), DESIGN.items())
def test_a_rule_of_the_design_is_there_under_its_name(rule_id, name):
    assert BY_ID[rule_id].name == name
    assert BY_NAME[name].id == rule_id


def test_ids_and_names_are_unique():
    assert len(BY_ID) == len(BY_NAME) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_documentation_of_a_rule_says_what_to_do_and_where_it_is_published(rule):
    first, *rest = rule.documentation.splitlines()
    assert first.endswith((".", ")."))
    assert any(line.startswith("Source: ") for line in rest) or rule.id == "CG901"
    assert any(line.startswith("Fix: ") for line in rest) or rule.id == "CG502"
    assert not any(line.startswith(" ") for line in rest if line.strip())


def test_what_other_modules_ask_of_rules_is_said_by_the_rules():
    pool_only = [rule.id for rule in RULES if rule.pool_only and not "CG110" <= rule.id <= "CG149"]
    assert pool_only == ["CG104", "CG105", "CG106"]
    assert BY_ID["CG112"].pool_only  # a rule about nodes, which a driver roll-out concerns
    assert not BY_ID["CG114"].pool_only  # it asks about the stack's forward compatibility
    assert [rule.id for rule in RULES if rule.not_waivable] == ["CG821", "CG833", "CG835", "CG901"]
    assert [rule.id for rule in RULES if rule.cause == "evidence"] == ["CG811", "CG812", "CG813"]


def test_the_rules_about_the_organisation_are_told_apart_from_those_about_facts():
    ours = {rule.id for rule in RULES if not rule.about_facts}
    assert ours == {
        *("CG801", "CG802", "CG803", "CG804", "CG811", "CG812", "CG813", "CG821", "CG822"),
        *("CG831", "CG832", "CG833", "CG834", "CG835"),
    }
