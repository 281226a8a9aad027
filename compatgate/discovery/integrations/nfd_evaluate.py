"""Evaluate an NFD spec on a pool; report what a pool does not tell as not checked.

Sources: kubernetes-sigs/node-feature-discovery ``docs/usage/customization-guide.md`` (operators,
"Fields", ``matchExpressions``, feature types), ``pkg/apis/nfd/nodefeaturerule/expression.go``;
NVIDIA/k8s-device-plugin ``docs/gpu-feature-discovery`` (labels, which NFD has as
``local.label``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from msgspec import Struct

from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.request import Pool
from compatgate.discovery.integrations.nfd_spec import (
    VENDOR,
    Compatibility,
    Devices,
    Expression,
    Rule,
    Term,
)
from compatgate.errors import BadInput

Outcome = Literal["pass", "fail", "unknown"]
_CLASSES = {"0300", "0302"}
_LABELS = ("local.label", "local.feature")


class RuleResult(Struct, frozen=True):
    """The outcome of a rule on a pool.

    Attributes:
        why: expressions that fail or were not checked; empty where all hold.
    """

    rule: str
    pool: str
    outcome: Outcome
    why: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return ``{"rule", "pool", "outcome", "why"}``."""
        return {"rule": self.rule, "pool": self.pool, "outcome": self.outcome,
                "why": list(self.why)}  # fmt: skip


class _TermResult(Struct, frozen=True):
    """The result of a term; ``holds`` is None for "not known"."""

    holds: bool | None
    why: tuple[str, ...] = ()


def evaluate_spec(
    rules: Compatibility, pools: Iterable[Pool], table: Gpus, devices: Devices
) -> tuple[RuleResult, ...]:
    """Evaluate each rule of a set on each pool."""
    return tuple(
        _evaluate_rule(rule, pool, _Node(pool, table, devices))
        for pool in pools
        for rule in rules.rules
    )


def _evaluate_rule(rule: Rule, pool: Pool, node: _Node) -> RuleResult:
    terms = [node.term(term) for term in rule.match_features]
    if rule.match_any:
        terms.append(_any_holds([_all_hold([node.term(t) for t in one.match_features])
                           for one in rule.match_any]))  # fmt: skip
    if not terms:
        terms = [_TermResult(None, ("the rule requires nothing",))]
    seen = _all_hold(terms)
    outcome: Outcome = "unknown" if seen.holds is None else "pass" if seen.holds else "fail"
    return RuleResult(rule.name, pool.name, outcome, seen.why if outcome != "pass" else ())


class _Node:
    """A node of a pool, as NFD would see it."""

    def __init__(self, pool: Pool, table: Gpus, devices: Devices) -> None:
        self._pool = pool
        self._table = table
        self._devices = devices
        self._labels = _labels(pool)

    def term(self, term: Term) -> _TermResult:
        """Evaluate a term."""
        feature = term.feature.lower()
        if term.match_name is not None or not term.match_expressions:
            return _unknown_result(f"{term.feature}: matchName")
        if feature == "pci.device":
            return self._pci(term.match_expressions)
        if feature == "kernel.loadedmodule":
            ask: Callable[[str, Expression], _TermResult] = self._module
        elif feature in _LABELS:
            ask = self._label
        else:
            return _unknown_result(f"{term.feature}: {', '.join(term.match_expressions)}")
        return _all_hold([ask(name, one) for name, one in term.match_expressions.items()])

    def _pci(self, asked: Mapping[str, Expression]) -> _TermResult:
        """Evaluate expressions that one PCI device must meet; a pool tells only its GPU."""
        listed = ", ".join(f"{name} {expression_text(one)}" for name, one in asked.items())
        gpu, what = self._pool.gpu, f"pci.device: {listed}"
        vendor = asked.get("vendor")
        if gpu is None or not gpu.product or gpu.segment == "jetson":
            return _unknown_result(what)
        if vendor is None or vendor.op != "In" or VENDOR not in vendor.value:
            return _unknown_result(what)
        kinds = asked.get("class")
        if kinds and not (kinds.op == "In" and set(kinds.value) >= _CLASSES):
            return _unknown_result(what)
        if set(asked) - {"vendor", "class", "device"}:
            return _unknown_result(what)
        if "device" not in asked:
            return _TermResult(True)
        return self._device(asked["device"], what)

    def _device(self, asked: Expression, what: str) -> _TermResult:
        gpu = self._pool.gpu
        ours = self._devices.of_product(gpu.name) if gpu else frozenset()
        named = frozenset(value.lower() for value in asked.value)
        if not ours or asked.op not in ("In", "NotIn"):
            return _unknown_result(what)
        inside: bool | None = None
        if ours <= named:
            inside = True
        elif not ours & named and named <= self._devices.capabilities().keys():
            inside = False
        if inside is None:
            return _unknown_result(what)
        if inside == (asked.op == "In"):
            return _TermResult(True)
        return _TermResult(
            False, (f"pci.device: {gpu.name if gpu else ''} is not among the required devices",)
        )

    def _module(self, name: str, asked: Expression) -> _TermResult:
        pool = self._pool
        loaded = name == "nvidia" and pool.driver is not None and pool.os == "linux"
        if not loaded or (pool.gpu and pool.gpu.segment == "jetson"):
            return _unknown_result(f"kernel.loadedmodule: {name} {expression_text(asked)}")
        return _apply_operator(asked, "", f"kernel.loadedmodule: {name}")

    def _label(self, name: str, asked: Expression) -> _TermResult:
        what = f"label {name}"
        if name == "nvidia.com/gpu.product" and asked.op in ("In", "NotIn"):
            return self._product(asked, what)
        if name not in self._labels:
            return _unknown_result(f"{what} {expression_text(asked)}")
        return _apply_operator(asked, self._labels[name], what)

    def _product(self, asked: Expression, what: str) -> _TermResult:
        """Evaluate a product label, spelled as nvidia-smi does; families are not distinguished."""
        gpu = self._pool.gpu
        if gpu is None or not gpu.product:
            return _unknown_result(what)
        try:
            inside = gpu.sku in {resolve_gpu(value, self._table).sku for value in asked.value}
        except BadInput as error:
            return _unknown_result(f"{what}: {error.problem}")
        if inside == (asked.op == "In"):
            return _TermResult(True)
        return _TermResult(False, (f"{what} is {gpu.sku}, asked is {expression_text(asked)}",))


def _labels(pool: Pool) -> dict[str, str]:
    """Return the labels of GPU Feature Discovery that a pool decides."""
    found: dict[str, str] = {}
    if pool.gpu:
        major, minor = pool.gpu.capability
        found |= {"nvidia.com/gpu.compute.major": str(major),
                  "nvidia.com/gpu.compute.minor": str(minor)}  # fmt: skip
    if pool.driver:
        parts = pool.driver.text.split(".")
        for prefix, last in (("driver", "rev"), ("driver-version", "revision")):
            names = (f"nvidia.com/cuda.{prefix}.{part}" for part in ("major", "minor", last))
            found |= dict(zip(names, parts, strict=False))
        found["nvidia.com/cuda.driver-version.full"] = pool.driver.text
    return found


def _apply_operator(asked: Expression, value: str, what: str) -> _TermResult:
    """Apply an operator to an existing value."""
    fits = expression_holds(asked, value)
    if fits is None:
        return _unknown_result(f"{what} {expression_text(asked)}")
    is_ = f" is {value}" if value else " is there"
    return (
        _TermResult(True)
        if fits
        else _TermResult(False, (f"{what}{is_}, asked is {expression_text(asked)}",))
    )


def _all_hold(seen: list[_TermResult]) -> _TermResult:
    why = tuple(text for one in seen for text in one.why)
    failed = tuple(text for one in seen if one.holds is False for text in one.why)
    if any(one.holds is False for one in seen):
        return _TermResult(False, failed)
    return _TermResult(None if any(one.holds is None for one in seen) else True, why)


def _any_holds(seen: list[_TermResult]) -> _TermResult:
    why = tuple(text for one in seen for text in one.why)
    if any(one.holds for one in seen):
        return _TermResult(True)
    return _TermResult(None if any(one.holds is None for one in seen) else False, why)


def _unknown_result(what: str) -> _TermResult:
    return _TermResult(None, (f"not checked: {what}",))


def expression_holds(asked: Expression, value: str) -> bool | None:
    """Return whether an existing value meets an expression; None where that is not decidable."""
    if asked.op in ("In", "NotIn"):
        return (value in asked.value) == (asked.op == "In") if asked.value else None
    if asked.op in ("Exists", "DoesNotExist"):
        return asked.op == "Exists"
    if asked.op in ("IsTrue", "IsFalse"):
        return value == ("true" if asked.op == "IsTrue" else "false")
    return _compare(asked, value)


_BOUNDS: dict[str, tuple[Callable[[tuple[int, ...], tuple[int, ...]], bool], ...]] = {
    "Gt": (lambda a, b: a > b,),
    "Ge": (lambda a, b: a >= b,),
    "Lt": (lambda a, b: a < b,),
    "Le": (lambda a, b: a <= b,),
    "GtLt": (lambda a, b: a > b, lambda a, b: a < b),
    "GeLe": (lambda a, b: a >= b, lambda a, b: a <= b),
}


def _compare(asked: Expression, value: str) -> bool | None:
    """Compare whole numbers, or versions by type; return None for regular expressions."""
    tests = _BOUNDS.get(asked.op)
    numbers = [_number(text, asked.type) for text in (value, *asked.value)]
    if tests is None or len(asked.value) != len(tests) or asked.type not in ("", "version"):
        return None
    here, *bounds = numbers
    if here is None:
        return None
    found = [None if b is None else test(here, b) for test, b in zip(tests, bounds, strict=True)]
    return None if None in found else all(found)


def _number(text: str, kind: str) -> tuple[int, ...] | None:
    form = r"\d{1,9}(\.\d{1,9}){0,2}" if kind == "version" else r"\d{1,18}"
    if not re.fullmatch(form, text, re.ASCII):
        return None
    return (*map(int, text.split(".")), 0, 0)[:3]


def expression_text(asked: Expression) -> str:
    """Return the expression as text, with its first values."""
    values = ", ".join(asked.value[:4]) + (", ..." if len(asked.value) > 4 else "")
    return f"{asked.op} {values}".strip()
