"""AICR recipes: what a cluster is to be like, before it is.

Sources: NVIDIA/aicr ``examples/recipes`` and ``recipes/components/gpu-operator/values.yaml``;
``criteria.accelerator`` is a token of ``pkg/recipe`` (``h100``, ``gb200``, ``any``).
"""

from __future__ import annotations

from compatgate.discovery.neighbours.aicr import measured
from compatgate.discovery.neighbours.draft import Draft, DraftPool
from compatgate.discovery.neighbours.objects import Body, items, part, text_of
from compatgate.discovery.neighbours.operator import Declared, of_settings

_OPERATOR = "gpu-operator"


def read_recipe(body: Body) -> Draft:
    """The pool that a recipe is for; the driver where the recipe itself names it."""
    why: dict[str, str] = {}
    notes = [f"{name}: {value}" for name, value in _constraints(body) if "driver" in name.lower()]
    criteria = part(body, "criteria") or part(body, "spec", "criteria") or part(body, "request")
    accelerator = text_of(criteria.get("accelerator") or criteria.get("gpu"))
    gpu = accelerator if accelerator not in ("", "any") else None
    if gpu is None:
        why["gpu"] = "the recipe is for any accelerator"
    declared = _driver(body)
    if declared.version is None:
        why["driver"] = declared.why
    named = "-".join(filter(None, (text_of(criteria.get("service")), accelerator))) or "recipe"
    pool = DraftPool(named.lower(), gpu, declared.version, why=why)
    notes.append("a recipe says what is intended; what nodes have, a snapshot tells")
    return Draft((pool,), tuple(notes))


def _driver(body: Body) -> Declared:
    """By the operator's overrides, else (older recipes) by the driver's image or version."""
    spec = part(body, "spec") if items(part(body, "spec"), "componentRefs") else body
    for component in items(spec, "componentRefs"):
        if component.get("name") == _OPERATOR:
            settings = part(component, "overrides", "driver")
            if "version" in settings or "enabled" in settings:
                return of_settings(settings, f"override of {_OPERATOR}", _OPERATOR)
            values = text_of(component.get("valuesFile"))
            why = f"the recipe takes the driver's version from {values or 'the chart'}"
            return Declared(_OPERATOR, _OPERATOR, why=f"{why}, which it does not hold")
    older = text_of(measured(body, "K8s", "image").get("driver"))
    older = older or text_of(measured(body, "GPU", "smi").get("driver-version"))
    if older:
        return of_settings({"version": older}, "measurements of the recipe", _OPERATOR)
    return Declared(_OPERATOR, _OPERATOR, why="the recipe names no driver")


def _constraints(body: Body) -> list[tuple[str, str]]:
    found = [*items(body, "constraints"), *items(part(body, "spec"), "constraints")]
    return [(text_of(one.get("name")), text_of(one.get("value"))) for one in found]
