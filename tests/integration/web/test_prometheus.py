"""A real Prometheus scrapes a real gate, and fires the alert when the gate is gone."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from serving import Server
from staging import until
from tables import read_table

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
STACK = {"cuda": "12.4", "arch": ["sm_80"]}


class Prometheus:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def ask(self, path: str) -> Any:
        try:
            with urlopen(self._url + path, timeout=10) as answer:
                return json.loads(answer.read())["data"]
        except OSError:
            return None

    def values(self, expression: str) -> list[dict[str, Any]]:
        """The vector that an expression gives now."""
        found = self.ask(f"query?query={quote(expression)}")
        assert found is not None, expression
        result: list[dict[str, Any]] = found["result"]
        return result

    def alerts(self) -> dict[str, Any]:
        found = self.ask("alerts") or {"alerts": []}
        return {one["labels"]["alertname"]: one for one in found["alerts"]}


@pytest.fixture
def prometheus(serve: Any, tmp_path: Path) -> Iterator[tuple[Prometheus, Server]]:
    """Scrapes the gate each second; alerts fire without their usual patience."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (apt-get install prometheus)")
    gate = serve("--anonymous", "gate")
    (tmp_path / "token").write_text(gate.token)
    rules = (MONITORING / "alerts.yaml").read_text()
    (tmp_path / "alerts.yaml").write_text(re.sub(r"for: \d+[mh]", "for: 1s", rules))
    config = read_table(MONITORING / "prometheus.yaml")
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"] = config["scrape_configs"][:1]
    config["scrape_configs"][0]["authorization"]["credentials_file"] = str(tmp_path / "token")
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{gate.port}"]}]
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (tmp_path / "prometheus.log").open("w") as log:
        process = subprocess.Popen([program, *options], stderr=log, stdout=log)
    try:
        yield Prometheus(port), gate
    finally:
        process.kill()
        process.wait()


def test_an_alert_fires_when_the_gate_is_gone(prometheus: tuple[Prometheus, Server]) -> None:
    running, gate = prometheus
    verdict = gate.gate(STACK).json()
    up = until(lambda: running.ask('query?query=up{job="compatgate"}'), 20)
    assert up is not None
    counted = 'compatgate_target_decisions_total{target="prod-a100"}'
    until(lambda: running.ask("targets") and running.values(counted), 20)
    (sample,) = running.values(counted)
    assert sample["metric"]["verdict"] == verdict["verdict"]
    assert sample["value"][1] == "1"
    (group,) = running.ask("rules")["groups"]
    until(lambda: all(r["health"] == "ok" for r in running.ask("rules")["groups"][0]["rules"]), 20)
    (shipped,) = read_table(MONITORING / "alerts.yaml")["groups"]
    assert [one["name"] for one in group["rules"]] == [one["alert"] for one in shipped["rules"]]
    until(lambda: "CompatgateGateDown" not in running.alerts(), 20)

    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            asked = target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")
            running.values(asked)
    assert running.values("sum(compatgate_ready)")[0]["value"][1] == "1"

    gate.kill()
    fired = until(lambda: running.alerts().get("CompatgateGateDown"), 20)
    until(lambda: running.alerts()["CompatgateGateDown"]["state"] == "firing", 20)
    assert fired["labels"]["severity"] == "critical"
    assert fired["annotations"]["runbook_url"].endswith("/how-to/runbook.md#compatgategatedown")
