"""Every lesson of the facts' README, and every failure that real users met, comes out right."""

from pathlib import Path

import pytest
from tables import read_table

LESSONS = read_table(Path(__file__).parent / "lessons.yaml")


def _as_list(value):
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("row", LESSONS, ids=lambda row: row["lesson"])
def test_the_lesson_comes_out_right(row, ask):
    verdict = ask(row["pool"], row["stack"])
    said = [(f.rule, f.outcome, f.message) for f in verdict.findings]
    outcomes: dict[str, set[str]] = {}
    for finding in verdict.findings:
        outcomes.setdefault(finding.rule, set()).add(finding.outcome)

    if "verdict" in row:
        assert verdict.verdict in _as_list(row["verdict"]), said
    for rule, expected in row.get("rules", {}).items():
        assert outcomes.get(rule, set()) & set(_as_list(expected)), said
    for rule in row.get("absent", []):
        assert not outcomes.get(rule, set()) & {"fail", "unknown", "warn"}, said
    text = " ".join(f"{f.message} {f.need}" for f in verdict.findings)
    for words in row.get("says", []):
        assert words in text, said
    if "fix" in row:
        offered = [fix.set for f in verdict.findings for fix in f.fixes]
        assert any(row["fix"].items() <= change.items() for change in offered), offered


def test_the_table_speaks_of_every_published_rule_about_facts():
    from compatgate.core.rules import RULES

    spoken = {rule for row in LESSONS for rule in (*row.get("rules", {}), *row.get("absent", []))}
    silent = {rule.id for rule in RULES if rule.about_facts} - spoken
    assert silent <= {"CG104", "CG403", "CG701"}  # walked record by record elsewhere
