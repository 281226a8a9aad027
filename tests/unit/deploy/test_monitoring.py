"""Alerts, dashboard, runbook and metrics agree with each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tables import read_table

from compatgate.web.metric_table import GATE, WORKER

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
RULE_TESTS = ("alerts_test.yaml", "alerts_slow_test.yaml")
RUNBOOK = ROOT / "docs" / "how-to" / "runbook.md"
LABELS = {name: spec.labels for spec in (*GATE, *WORKER) for name in spec.exported}
ADDED = {"job", "instance"}
"""Labels that Prometheus adds to every sample."""
OF_PROMETHEUS = {"up": ()}


def alerts() -> list[dict[str, Any]]:
    (group,) = read_table(MONITORING / "alerts.yaml")["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return found


def panels() -> Iterator[dict[str, Any]]:
    yield from (panel for panel in dashboard()["panels"] if panel["type"] != "row")


def panel_expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def expressions() -> list[str]:
    """What alerts and panels ask, with Grafana's variables filled in."""
    asked = [alert["expr"] for alert in alerts()] + panel_expressions()
    return [one.replace("$__rate_interval", "5m").replace("$instance", ".*") for one in asked]


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics of an expression, with the labels that are asked for."""
    for name, matchers in re.findall(r"\b((?:compatgate_\w+|up))\b(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))


@pytest.fixture
def promtool() -> Callable[..., None]:
    """Runs the real promtool in the folder; fails with what it says."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")

    def run(*arguments: str) -> None:
        done = subprocess.run(
            [found, *arguments], cwd=MONITORING, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_promtool_accepts_the_rules_and_their_tests(promtool: Callable[..., None]) -> None:
    promtool("check", "rules", "alerts.yaml")
    promtool("test", "rules", *RULE_TESTS)


def test_promtool_accepts_the_scrape_configuration(promtool: Callable[..., None]) -> None:
    promtool("check", "config", "--syntax-only", "prometheus.yaml")


def test_promtool_accepts_every_expression_of_the_dashboard(
    promtool: Callable[..., None], tmp_path: Path
) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": asked} for number, asked in enumerate(expressions())
    ]
    path = tmp_path / "panels.json"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(path))


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_and_label_exists(expression: str) -> None:
    known = {**LABELS, **OF_PROMETHEUS}
    asked = list(selectors(expression))
    assert asked
    for name, labels in asked:
        assert name in known, name
        allowed = {*known[name], *ADDED, *(["le"] if name.endswith("_bucket") else [])}
        assert labels <= allowed, (name, labels - allowed)
    grouped = {
        label.strip()
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
        for label in group.split(",")
    }
    every = {label for name, _ in asked for label in known[name]}
    assert grouped <= every | ADDED | {"le"}, grouped


def test_each_alert_is_tested_both_ways() -> None:
    cases = [
        (case["alertname"], bool(case["exp_alerts"]))
        for name in RULE_TESTS
        for one in read_table(MONITORING / name)["tests"]
        for case in one["alert_rule_test"]
    ]
    names = [alert["alert"] for alert in alerts()]
    assert sorted(cases) == sorted((name, fires) for name in names for fires in (True, False))


def test_each_alert_has_a_section_of_the_runbook_that_it_links_to() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sections == [alert["alert"] for alert in alerts()]
    for alert in alerts():
        page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert ROOT / page == RUNBOOK
        assert anchor == alert["alert"].lower()
        assert alert["labels"]["severity"] in ("critical", "warning", "info")


def test_each_section_of_the_runbook_says_what_to_do() -> None:
    parts = re.split(r"^## ", RUNBOOK.read_text(), flags=re.MULTILINE)[1:]
    for part in parts:
        found = re.findall(r"^\*\*(.+?)\*\*", part, re.MULTILINE)
        assert found == ["Meaning.", "First checks.", "Do."], part.partition("\n")[0]


def test_the_dashboard_has_the_form_that_grafana_reads() -> None:
    found = dashboard()
    assert found["schemaVersion"] >= 36
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    variables = {variable["name"] for variable in found["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(found["panels"]))) - {"__rate_interval"}
    assert used <= variables
    assert all(panel["datasource"]["type"] == "prometheus" for panel in panels())


def test_the_dashboard_shows_what_alerts_are_about() -> None:
    shown = {name for asked in panel_expressions() for name, _ in selectors(asked)}
    alerted = {name for alert in alerts() for name, _ in selectors(alert["expr"])}
    assert alerted <= shown
