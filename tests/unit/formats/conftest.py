"""Verdicts to put into every form."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.core.facts.nvidia import Source
from compatgate.core.rule import Checked, Finding, Fix, Verdict


def finding(rule: str, outcome: Any, **fields: Any) -> Finding:
    return Finding(
        **{
            "rule": rule,
            "name": "a-rule",
            "outcome": outcome,
            "component": "driver",
            "have": "525.60.12",
            "need": ">=525.60.13",
            "message": f"message of {rule}",
            "pools": ("pool",),
            "source": None,
            "fixes": (),
            **fields,
        }
    )


def verdict(*findings: Finding, **fields: Any) -> dict[str, Any]:
    pool = {
        "name": "pool",
        "gpu": "A100-SXM4-80GB",
        "compute_capability": "8.0",
        "driver": "525.60.12",
        "os": "linux",
        "cpu": "x86_64",
        "count": 1,
    }
    return Verdict(
        **{
            "id": "vd_1",
            "verdict": "pass",
            "allowed": True,
            "mode": "enforce",
            "target": None,
            "findings": findings,
            "checked": Checked(("CG105", "CG201"), ("CG103",)),
            "stack": {"cuda": "12.1", "torch": "2.4.1", "arch": ["sm_80"]},
            "pools": (pool,),
            "matrix_revision": 0,
            "facts": "sha256:0123456789abcdef",
            "decided_at": "2026-11-21T10:00:00.000Z",
            **fields,
        }
    ).to_json()


@pytest.fixture
def passing() -> dict[str, Any]:
    return verdict()


@pytest.fixture
def denied() -> dict[str, Any]:
    source = Source("CUDA Toolkit Release Notes", "https://docs.nvidia.com/x")
    fixes = (
        Fix({"driver": ">=525.60.13"}, "raise the driver"),
        Fix({"cuda-compat": None, "arch": ["sm_80", "compute_80"]}, "leave it out"),
    )
    return verdict(
        finding("CG101", "fail", name="driver-too-old", source=source, fixes=fixes),
        finding("CG104", "warn", name="driver-branch-eol"),
        finding("CG301", "not-checked", have=None, need=None),
        verdict="fail",
        allowed=False,
    )


@pytest.fixture
def unknown() -> dict[str, Any]:
    return verdict(finding("CG901", "unknown", have=None), verdict="unknown", allowed=False)


@pytest.fixture
def on_target() -> dict[str, Any]:
    pools = tuple(
        {"name": name, "gpu": "L4", "driver": "535.104.05", "os": "linux"} for name in ("a", "b")
    )
    return verdict(
        finding("CG803", "waived", pools=("a", "b")),
        finding("CG821", "warn", pools=("b",)),
        verdict="warn",
        target="prod",
        pools=pools,
        matrix_revision=42,
        evidence=("run_1",),
        overlays=("site.yaml",),
        valid_until="2027-01-31T00:00:00Z",
    )


@pytest.fixture
def hostile() -> dict[str, Any]:
    message = '::error::x%0A\n<script>"&|`]]>\x00 $(rm)'
    return verdict(
        finding("CG101", "fail", message=message, have=message, need=message, name="a:b,c"),
        verdict="fail",
        allowed=False,
        image=message,
        stack={"torch": message},
    )
