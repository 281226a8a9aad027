"""The stories that compatgate must serve, told through the real server and the real command."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date, timedelta

import pytest

COMPATGATE = [sys.executable, "-m", "compatgate"]

PROD = {
    "metadata": {"name": "prod", "labels": {"tier": "prod"}},
    "spec": {
        "pools": [
            {"name": "a100", "gpu": "NVIDIA A100-SXM4-80GB", "driver": "535.183.01", "count": 512}
        ],
        "policy": {"mode": "enforce", "requireEntry": True},
    },
}
BLESSED_89 = {
    "metadata": {"name": "torch22-cudnn89"},
    "spec": {
        "targets": ["prod"],
        "components": {"cuda": "12.1.*", "cudnn": "8.9.*", "torch": "~=2.2.0"},
        "status": "blessed",
        "reason": "suite dl-core passed on staging",
    },
}
TORCH22 = {"torch": "2.2.2+cu121", "cuda": "12.1", "cudnn": "8.9.2"}


@pytest.fixture
def server(start_server):
    server = start_server()
    server.admin("POST", "targets", PROD)
    server.admin("POST", "entries", BLESSED_89)
    return server


def rules(answer, outcome="fail"):
    return {f["rule"] for f in answer["findings"] if f["outcome"] == outcome}


def test_the_comforting_phrase_compatible_is_not_identical(server):
    safe = server.gate({"cuda": "12.1", "arch": ["sm_80"]}, set={"driver": "525.60.13"})
    jit = server.gate({"cuda": "12.1", "arch": ["compute_80"]}, set={"driver": "525.60.13"})

    assert "CG102" in rules(safe, "warn")
    assert {"CG102", "CG202"} <= rules(jit)
    ptx = next(f for f in jit["findings"] if f["rule"] == "CG202")
    assert any(fix["set"].get("driver") == ">=530.30.02" for fix in ptx["fixes"]) or any(
        "sm_80" in fix["set"].get("arch", []) for fix in ptx["fixes"]
    )


def test_the_rebuilt_image_with_a_new_cudnn_major_is_denied_with_the_way_back(server):
    assert server.gate(TORCH22)["allowed"]

    rebuilt = server.gate({**TORCH22, "cudnn": "9.1.0"})

    assert not rebuilt["allowed"]
    assert {"CG402", "CG801"} <= rules(rebuilt)
    not_blessed = next(f for f in rebuilt["findings"] if f["rule"] == "CG801")
    assert "differs in cudnn" in not_blessed["message"]
    assert not_blessed["fixes"][0]["set"] == {"cudnn": "8.9.2"}

    by_hand = server.check("--target", "prod", "--stack", "torch=2.2.2+cu121,cudnn=9.1.0")
    assert by_hand.returncode == 1
    assert "CG402" in by_hand.stdout
    assert "cudnn=8.9.2" in by_hand.stdout


def test_the_other_sku_is_denied_before_a_node_pulls_the_image(server):
    on_l4 = server.check(
        "--pool", "driver=535.183.01,gpu=L4", "--stack", "cuda=12.2,arch=sm_90+sm_100"
    )
    assert on_l4.returncode == 1
    assert "CG201" in on_l4.stdout
    assert "sm_89" in on_l4.stdout


def test_the_postmortem_asks_what_was_said_and_what_would_have_been_said(server):
    said = server.gate(TORCH22)
    then = said["matrix_revision"]
    revoked = {**BLESSED_89, "spec": {**BLESSED_89["spec"], "status": "revoked"}}
    server.admin("PUT", "entries/torch22-cudnn89", revoked)

    now = server.gate(TORCH22)
    _, would = server.call("POST", f"gate/preview?at={then}", {"target": "prod", "stack": TORCH22})
    _, decisions = server.call("GET", "decisions?target=prod")
    _, shown = server.call("GET", f"verdicts/{said['id']}")

    assert "CG802" in rules(now)
    assert would["allowed"]
    assert would["matrix_revision"] == then
    assert [d["verdict_id"] for d in decisions["items"]] == [now["id"], said["id"]]
    assert shown["id"] == said["id"]
    assert shown["allowed"]


def test_what_if_shows_a_driver_bump_before_anyone_rolls_it(server):
    bumped = server.gate(TORCH22, set={"driver": "580.95.05"})
    assert bumped["pools"][0]["driver"] == "580.95.05"
    assert bumped["allowed"]
    too_old = server.gate(TORCH22, set={"driver": "470.256.02"})
    assert "CG101" in rules(too_old)


def test_a_waiver_lets_pass_what_it_names_and_says_so(server):
    deprecated = {**BLESSED_89, "spec": {**BLESSED_89["spec"], "status": "revoked"}}
    server.admin("PUT", "entries/torch22-cudnn89", deprecated)
    assert not server.gate(TORCH22)["allowed"]

    server.admin(
        "POST",
        "waivers",
        {
            "metadata": {"name": "legacy"},
            "spec": {
                "rules": ["CG802"],
                "targets": ["prod"],
                "owner": "team-ocr",
                "reason": "the rewrite lands in spring",
                "expires": (date.today() + timedelta(days=30)).isoformat(),
                "match": {"components": {"cudnn": "8.9.*"}},
            },
        },
    )
    waived = server.gate(TORCH22)

    assert waived["allowed"]
    assert waived["verdict"] == "warn"
    assert "CG802" in rules(waived, "waived")
    assert "CG821" in rules(waived, "warn")


def test_a_bundle_decides_without_the_server_as_the_server_does(server, tmp_path):
    bundle = tmp_path / "matrix.bundle"
    exported = subprocess.run(
        [*COMPATGATE, "bundle", "export", "--database", server.database, "-o", str(bundle)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert exported.returncode == 0, exported.stderr
    stack = ",".join(f"{k}={v}" for k, v in TORCH22.items())
    offline = subprocess.run(
        [
            *COMPATGATE,
            "check",
            "--bundle",
            str(bundle),
            "--target",
            "prod",
            "--stack",
            stack,
            "--format",
            "json",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert offline.returncode == 0, offline.stderr
    assert json.loads(offline.stdout)["id"] == server.gate(TORCH22)["id"]


def test_writing_needs_a_token_and_a_gate_that_does_not_answer_is_no_decision(server):
    status, problem = server.call("POST", "entries", BLESSED_89)
    assert status == 401
    assert problem["status"] == 401
    nobody = subprocess.run(
        [
            *COMPATGATE,
            "check",
            "--server",
            "http://127.0.0.1:9",
            "--target",
            "prod",
            "--stack",
            "cuda=12.1",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert nobody.returncode == 3
    open_gate = subprocess.run(
        [
            *COMPATGATE,
            "check",
            "--server",
            "http://127.0.0.1:9",
            "--fail-open",
            "--target",
            "prod",
            "--stack",
            "cuda=12.1",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert open_gate.returncode == 0
    assert "fail-open" in open_gate.stderr.lower() or "fail open" in open_gate.stderr.lower()


def test_the_drifted_node_is_found_among_512_and_since_when(server):
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.count": "8"}
    driver = "nvidia.com/cuda.driver-version.full"

    def report(odd):
        for first in range(0, 512, 256):
            nodes = [
                {"name": f"gpu-{n:03}", "target": "prod",
                 "labels": labels | {driver: "550.54.15" if n in odd else "535.183.01"}}
                for n in range(first, first + 256)
            ]  # fmt: skip
            server.admin("POST", "nodes", {"cluster": "eu", "nodes": nodes})

    report(odd=())
    assert server.call("GET", "drift")[1]["items"] == []
    before = server.call("GET", "nodes/gpu-007")[1]["since"]
    report(odd=(7, 300))
    report(odd=(7, 300))

    found = server.call("GET", "drift?target=prod")[1]["items"]
    assert [node["name"] for node in found] == ["gpu-007", "gpu-300"]
    assert found[0]["differences"][0]["message"] == (
        "it has driver 550.54.15, prod declares 535.183.01"
    )
    assert before < found[0]["since"] < found[0]["seen_at"]
    changes = server.call("GET", "audit?action=nodes.report")[1]["items"]
    assert [link["detail"]["counts"] for link in changes] == [
        {"new": 0, "changed": 1}, {"new": 0, "changed": 1},
        {"new": 256, "changed": 0}, {"new": 256, "changed": 0},
    ]  # fmt: skip
