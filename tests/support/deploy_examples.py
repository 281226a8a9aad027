"""The examples of ``deploy/`` with values filled in, as their tools fill them in."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from kubectl_tools import helm, rendered
from tables import read_table

TESTS = Path(__file__).parents[1]
DEPLOY = TESTS.parent / "deploy"
FOLDER = TESTS / "conformance" / "hooks"
SCHEMAS = TESTS / "fixtures" / "schemas" / "argo"
SERVICE = "https://compatgate.compatgate.svc"
_ARGUMENT = re.compile(r"\{\{args\.([\w-]+)\}\}")


def helm_objects(
    folder: Path, values: Mapping[str, Any], files: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What Helm renders of the job's template in a chart with files and changed values.

    Args:
        folder: for the chart.
        values: laid over those of ``values.yaml``.
        files: names in the chart, and contents.
    """
    chart = folder / "chart"
    (chart / "templates").mkdir(parents=True, exist_ok=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: trainer\nversion: 0.1.0\n")
    shutil.copy(DEPLOY / "helm-hook" / "values.yaml", chart)
    shutil.copy(DEPLOY / "helm-hook" / "compatgate-job.yaml", chart / "templates")
    for name, text in files.items():
        (chart / name).parent.mkdir(exist_ok=True)
        (chart / name).write_text(text)
    (chart / "own.yaml").write_text(json.dumps(values))
    return rendered(helm("template", "trainer", chart, "--values", chart / "own.yaml").stdout)


def load(name: str) -> Any:
    """The only document of a file of ``deploy/``."""
    return yaml.load((DEPLOY / name).read_text(), yaml.CSafeLoader)


def analysis(name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    """The spec of an AnalysisTemplate with a Rollout's arguments, as Argo Rollouts resolves them.

    Source: argoproj/argo-rollouts 9f8d111 ``utils/analysis/factory.go`` (ResolveMetricArgs) and
    ``utils/template/template.go``: text for text in the JSON of a metric; an argument without a
    value is an error.
    """
    spec = load(f"argo-rollouts/{name}.yaml")["spec"]
    declared = {one["name"]: one.get("value") for one in spec["args"]}
    declared |= {one["name"]: "cg_secret" for one in spec["args"] if "valueFrom" in one}
    assert set(arguments) <= set(declared), "an argument that the template does not declare"
    values = {**declared, **arguments}
    assert [key for key, value in values.items() if value is None] == []
    text = json.dumps(spec["metrics"])
    found: list[dict[str, Any]] = json.loads(
        _ARGUMENT.sub(lambda match: json.dumps(values[match[1]])[1:-1], text)
    )
    return {"metrics": found, "used": set(_ARGUMENT.findall(text)), "declared": set(declared)}


def vendor_schema(kind: str) -> dict[str, Any]:
    """The schema that Argo publishes of a kind of object."""
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{kind}.json").read_text())
    return schema


def definition_of(name: str) -> dict[str, Any]:
    """The table of the fields of a deploy tool."""
    found: dict[str, Any] = read_table(FOLDER / "fields.yaml")[name]
    return found


FIELD_TYPES: dict[str, Any] = {
    "text": {"type": "string"},
    "number": {"type": "number"},
    "whole number": {"type": "integer"},
    "true or false": {"type": "boolean"},
    "object": {"type": "object"},
    "list": {"type": "array"},
    "anything": {},
}


def schema_of(fields: dict[str, Any]) -> dict[str, Any]:
    """The schema of a table of fields; an API server with strict validation refuses others."""
    made: dict[str, Any] = {"type": "object"}
    for path, takes in fields.items():
        where = made
        for name in path.removesuffix("!").replace("[]", ".[]").split("."):
            owner, key = where, name
            if name == "[]":
                where = owner.setdefault("items", {})
            else:
                owner["additionalProperties"] = False
                where = owner.setdefault("properties", {}).setdefault(name, {})
        where |= {"enum": takes} if isinstance(takes, list) else FIELD_TYPES[takes]
        if path.endswith("!"):
            owner.setdefault("required", []).append(key)
    return made
