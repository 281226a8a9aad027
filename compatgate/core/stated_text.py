"""Find the versions, the driver and the GPU that a pasted text states.

Only forms that say what is installed count: the report of ``torch.utils.collect_env``, ``pip
freeze``, nvidia-smi's table, and messages with a name. A value that a text states in two ways is
left out, and so is a requirement (``requires torch==2.4.1``): what is not sure is not stated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from compatgate.core.components import find_component, is_framework
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput

_LONGEST = 1 << 20  # characters of a text that are read
_PIN = re.compile(r"^(?:\[pip\d?\][ ]{1,4})?([A-Za-z][\w.-]{1,60})==([0-9][\w.+]{0,40})\s*$", re.M)
_NAMED = re.compile(r"\b([A-Za-z]{3,20})[ ]version[: ]{1,4}v?([0-9]+\.[\w.+]{1,40})", re.I)
_BUILT_FOR = re.compile(r"CUDA used to build PyTorch: ([0-9]{1,2}\.[0-9]{1,2})\b")
_DRIVER = re.compile(
    r"driver version[: ]{1,4}([0-9]{3}\.[0-9]{2,3}(?:\.[0-9]{2})?)\b"
    r"|NVRM version: [^\n]{0,80}?[ ]([0-9]{3}\.[0-9]{2,3}(?:\.[0-9]{2})?)[ ]",
    re.I,
)
_GPU = re.compile(
    r"\b((?:NVIDIA|Tesla|GeForce|Quadro)[ ][\w -]{2,40}?)"
    r"(?=[ ]with CUDA capability|[ ]{2,}|[ ]*[,|(\n]|[ ]*$)"
)
_OTHERS = ("python", "cudnn", "nccl")


class StatedText(Struct, frozen=True):
    """What a text states; empty where it does not."""

    stack: dict[str, str] = {}
    pool: dict[str, str] = {}


def read_stated(text: str, facts: Facts) -> StatedText:
    """Return the versions, the driver and the GPU that a text states, each of them once."""
    text = text[:_LONGEST]
    stack: dict[str, set[str]] = {}
    for name, version in _PIN.findall(text):
        found = find_component(name)
        part = found.component.name if found else name.lower().replace("_", "-")
        if part not in ("cuda", "driver") and (found or part in facts.recorded):
            stack.setdefault(part, set()).update(_checked(part, version))
    for name, version in _NAMED.findall(text):
        found = find_component(name)
        part = found.component.name if found else ""
        if part in _OTHERS or is_framework(part):
            stack.setdefault(part, set()).update(_checked(part, version))
    stack["cuda"] = set(_BUILT_FOR.findall(text))
    pool = {
        "driver": {one or other for one, other in _DRIVER.findall(text)},
        "gpu": set(_read_gpus(text, facts)),
    }
    return StatedText(_keep_sure(stack), _keep_sure(pool))


def complete_question(
    question: Mapping[str, Any], text: str, facts: Facts
) -> tuple[dict[str, Any], dict[str, str]]:
    """Complete a question with what a text states, where the question leaves it out.

    Return also the values that were used; a question that still lacks a stack or a place stays as
    it is.
    """
    stated = read_stated(text, facts)
    placed, has_stack = question.get("target") or question.get("pool"), question.get("stack")
    stack = {} if has_stack or question.get("image") else stated.stack
    pool = {} if placed else stated.pool
    if not (has_stack or question.get("image") or stack) or not (placed or pool):
        return dict(question), {}
    added = {"stack": stack, "pool": pool}
    whole = {**question, **{name: values for name, values in added.items() if values}}
    return whole, {**stack, **pool}


def _keep_sure(stated: dict[str, set[str]]) -> dict[str, str]:
    """Return what is stated in one way; a version with its build is the same one."""
    found = {}
    for name, versions in stated.items():
        whole = {v for v in versions if not any(w.startswith(f"{v}+") for w in versions)}
        if len(whole) == 1:
            found[name] = whole.pop()
    return found


def _checked(name: str, version: str) -> tuple[str, ...]:
    try:
        return (parse_version(name, version).text,)
    except BadInput:
        return ()


def _read_gpus(text: str, facts: Facts) -> Iterator[str]:
    for name in dict.fromkeys(_GPU.findall(text)):
        try:
            gpu = resolve_gpu(name.strip(), facts.gpus)
        except BadInput:
            continue
        if gpu.product:
            yield gpu.sku
