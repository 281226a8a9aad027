"""No derived bound of the shipped facts denies, whatever it is asked about."""

from compatgate.catalog import read_source
from compatgate.core.facts import Facts

POOLS = (
    "driver=470.57.02,gpu=M60",
    "driver=520.61.05,gpu=P100-PCIE-16GB",
    "driver=535.104.05,gpu=V100-SXM2-32GB",
    "driver=580.65.06,gpu=B200",
)


def stacks(facts: Facts):
    """Every release of every framework and of cuDNN, by itself and with an old Python."""
    for name in sorted(facts.framework_names):
        table = facts.framework(name)
        for release in table.releases if table else ():
            yield f"{name}={release.version.text}"
            yield f"{name}={release.version.text},python=3.6"
    for release in facts.cudnn.releases:
        for major in release.builds:
            yield f"cudnn={release.version.text},cuda={major}.0"


def test_no_finding_denies_by_a_derived_fact(facts, ask):
    denied = derived = 0
    for pool in POOLS:
        for stack in stacks(facts):
            for finding in ask(pool, stack, with_fixes=False).findings:
                guess = finding.source is not None and finding.source.confidence == "derived"
                denied += finding.outcome == "fail"
                derived += guess
                assert not (guess and finding.outcome == "fail"), (pool, stack, finding)
    assert denied > 1000
    assert derived > 300


def test_no_known_issue_of_others_denies_unless_it_was_published():
    issues = read_source("known_issues")["issues"]
    assert not [i["id"] for i in issues if i["outcome"] == "fail" and i["confidence"] == "derived"]
