"""A small fleet that takes a new driver, and everything that a test does with it over REST."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from canary_runs import STACK, evidence, host
from flask.testing import FlaskClient

from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.schemas import RunRequest

API = "/api/v1"
BY = Authorship("tester", "for the test")
OLD, NEW = "535.183.01", "580.95.05"
NAMES = ("n1", "n2", "n3")
Headers = dict[str, str]


class Fleet:
    """Three nodes of prod-a100, each a failure domain, and a clock that tests move."""

    def __init__(self, rooms: Rooms, client: FlaskClient, patch: pytest.MonkeyPatch) -> None:
        self.rooms, self.client = rooms, client
        self.now = clock.now()
        patch.setattr(clock, "now", lambda: self.now)
        self.tool = self.who("tool", "read", "upgrade")
        self.drivers = dict.fromkeys(NAMES, OLD)
        self.set_policy()
        self.widen_entry()
        self.report()

    def who(self, name: str, *scopes: Any, **options: Any) -> Headers:
        made = self.rooms.tokens.create(name, scopes, by="t", **options)
        return {"Authorization": f"Bearer {made.secret}"}

    def set_policy(self, **policy: Any) -> None:
        spec = self.document("Target", "prod-a100")["spec"]
        spec["match"] = {"nodeLabels": {"pool": "prod"}}
        spec["policy"] = {"mode": "enforce", "requireEntry": True, **policy}
        self.rooms.matrix.change("Target", "prod-a100", self.body("prod-a100", spec), BY)

    def widen_entry(self) -> None:
        spec = self.document("Entry", "torch24-cu124")["spec"]
        spec["components"]["driver"] = ">=535.104.05,<581"
        self.rooms.matrix.change("Entry", "torch24-cu124", self.body("torch24-cu124", spec), BY)

    def document(self, kind: Any, name: str) -> Any:
        return self.rooms.matrix.get(kind, name).document

    @staticmethod
    def body(name: str, spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": spec}

    def report(self, *names: str, driver: str | None = None) -> None:
        nodes = []
        for name in names or NAMES:
            self.drivers[name] = driver or self.drivers[name]
            labels = {
                "pool": "prod",
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
                "nvidia.com/gpu.count": "8",
                "nvidia.com/cuda.driver-version.full": self.drivers[name],
            }
            nodes.append({"name": name, "labels": labels})
        answer = self.client.post(f"{API}/nodes", json={"cluster": "eu", "nodes": nodes})
        assert answer.status_code == 200, answer.text

    def watch(self, *names: str, hours: float = 1, xids: tuple[int, ...] = ()) -> None:
        """Report the health of nodes in the last hours, and errors one minute ago."""
        at = (self.now - timedelta(minutes=1)).isoformat()
        since = (self.now - timedelta(hours=hours)).isoformat()
        nodes = [
            {
                "name": name,
                "since": since,
                "driver": self.drivers[name],
                "xids": [{"xid": xid, "at": at} for xid in xids],
            }
            for name in names
        ]
        answer = self.client.post(f"{API}/nodes/health", json={"cluster": "eu", "nodes": nodes})
        assert answer.status_code == 200, answer.text

    def pass_time(self, **time: float) -> datetime:
        self.now += timedelta(**time)
        return self.now

    def propose(self, name: str = "roll", **given: Any) -> Any:
        body = {
            "name": name, "target": "prod-a100", "driver": NEW, "soak": "1h", "health": False,
            "reason": "fixes Xid 119", **given,
        }  # fmt: skip
        return self.client.post(f"{API}/upgrades", json=body, headers=self.tool)

    def ask(self, wave: int | None = None, name: str = "roll", **query: Any) -> Any:
        asked = {"wave": wave, **query} if wave is not None else query
        path = f"{API}/upgrades/{name}/may-start"
        answer = self.client.get(path, query_string=asked, headers=self.tool)
        assert answer.status_code == 200, answer.text
        return answer.get_json()

    def answer(self, wave: int | None = None, **query: Any) -> str:
        return str(self.ask(wave, **query)["answer"])

    def act(self, what: str, who: Headers | None = None, name: str = "roll", **body: Any) -> Any:
        path = f"{API}/upgrades/{name}/{what}"
        sent: dict[str, Any] = {"json": body}
        if what in ("stop", "resume", "roll-back"):
            sent = {"query_string": body}
        return self.client.post(path, headers=who or self.tool, **sent)

    def show(self, name: str = "roll") -> Any:
        return self.client.get(f"{API}/upgrades/{name}").get_json()

    def roll(self, wave: int, *names: str) -> None:
        """Start a wave, and have its nodes take the driver."""
        assert self.ask(wave)["answer"] == "start"
        self.pass_time(minutes=10)
        self.report(*names, driver=NEW)

    def run_canary(self, outcome: Any) -> None:
        """End a canary run of the blessed stack on a staging host with the new driver."""
        staging = host("staging-580", driver=NEW)
        self.rooms.runs.queue.register("w580", [staging])
        asked = RunRequest("smoke", host="staging-580", stack=STACK)
        self.rooms.runs.submit(asked, by="t")
        lease = self.rooms.runs.queue.lease("w580", [staging])
        assert lease
        done = evidence(lease, outcome, driver=NEW)
        self.rooms.runs.queue.finish(lease, outcome, "", done)
