"""Examples of bodies; tests send each and expect what its name says."""

from __future__ import annotations

from typing import Any

QUESTIONS: dict[str, Any] = {
    "pool": {
        "pool": {"driver": "535.104.05", "gpu": "A100-SXM4-80GB", "os": "linux"},
        "stack": {"cuda": "12.4", "cudnn": "9.1.0", "arch": ["sm_80", "compute_80"]},
    },
    "target": {
        "target": "prod-a100",
        "stack": {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "arch": ["sm_80"]},
        "image": "registry.example/team/app:1.4",
    },
    "image": {
        "target": "prod-a100",
        "image": "registry.example/team/app:1.4",
        "stack": {"cuda": "12.4", "torch": "2.4.1+cu124"},
    },
    "what-if": {
        "target": "prod-a100",
        "stack": {"torch": "2.4.1+cu121", "arch": "sm_80+sm_90"},
        "set": {"driver": "550.54.15", "cudnn": "9.1.0"},
    },
}

TARGET: dict[str, Any] = {
    "metadata": {"name": "prod-a100", "labels": {"tier": "prod"}},
    "spec": {
        "pools": [
            {"name": "a100-80", "gpu": "A100-SXM4-80GB", "driver": "535.183.01", "count": 512}
        ],
        "policy": {"mode": "enforce", "requireEntry": True},
    },
    "reason": "the production pool of the new cluster",
}

ENTRY: dict[str, Any] = {
    "metadata": {"name": "torch24-cu124"},
    "spec": {
        "targets": ["prod-a100"],
        "components": {"driver": ">=535.104.05,<536", "cuda": "12.4.*", "torch": "~=2.4.0"},
        "status": "blessed",
        "reason": "suite dl-core passed on staging",
    },
    "reason": "bless torch 2.4 on CUDA 12.4",
}

WAIVER: dict[str, Any] = {
    "metadata": {"name": "legacy-ocr"},
    "spec": {
        "rules": ["CG803"],
        "targets": ["prod-a100"],
        "match": {"image": "registry.example/ocr/*"},
        "owner": "team-ocr",
        "reason": "moves to torch 2.4 in January",
        "expires": "2027-01-31",
    },
    "reason": "OCR may run until it has moved",
}

RUN: dict[str, Any] = {
    "suite": "hello",
    "target": "prod-a100",
    "stack": {"cuda": "12.4", "torch": "2.4.1+cu124"},
    "image": "registry.example/team/app:1.4",
    "priority": 5,
}

TOKEN: dict[str, Any] = {"name": "ci", "scopes": ["read", "gate"], "expires": "90d"}

BASELINES: dict[str, str] = {
    "name": "baselines.jsonl",
    "text": '{"type":"baselines","compatgate":"0.1.0","exported_at":"2026-11-21T20:16:37Z"}\n',
}
