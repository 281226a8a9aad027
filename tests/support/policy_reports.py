"""What the CRDs of policy reports accept."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

_SCHEMA = Path(__file__).parents[1] / "conformance" / "policyreport" / "schema.yaml"


def report_problems(report: dict[str, Any]) -> list[str]:
    """What the CRD does not accept of a report, or would drop without a word."""
    return [f"{error.json_path}: {error.message}" for error in _validator().iter_errors(report)]


@cache
def _validator() -> Draft202012Validator:
    whole = yaml.load(_SCHEMA.read_text(), yaml.CSafeLoader)
    return Draft202012Validator({**whole["report"], "$defs": whole["$defs"]})
