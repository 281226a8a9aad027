"""``workload.toml`` and ``suites.toml`` as typed structs, in the shape of their JSON Schemas."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from compatgate.canary.workload import Better
from compatgate.core.facts.peaks import PeakKind
from compatgate.documents.durations import PATTERN as DURATION
from compatgate.documents.sizes import PATTERN as SIZE
from compatgate.documents.specs import (
    LINE_PATTERN,
    NAME_PATTERN,
    SLUG_PATTERN,
    TEXT_PATTERN,
    TOOL_PATTERN,
    VARIABLE_PATTERN,
)

_Slug = Annotated[str, Meta(pattern=SLUG_PATTERN)]
_Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
_Line = Annotated[str, Meta(pattern=LINE_PATTERN)]
_Duration = Annotated[str, Meta(pattern=DURATION)]
_Size = Annotated[str, Meta(pattern=SIZE)]
_Variable = Annotated[str, Meta(pattern=VARIABLE_PATTERN)]
_Text = Annotated[str, Meta(pattern=TEXT_PATTERN, max_length=8192)]
_Seed = Annotated[int, Meta(ge=0, le=4_294_967_295)]


class _Spec(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class ImageTable(_Spec, frozen=True):
    """``[image]``."""

    inside: bool = False
    context: _Line | None = None
    tool: Annotated[str, Meta(pattern=TOOL_PATTERN)] | None = None
    reference: _Line | None = None
    network: bool = False


class LimitsTable(_Spec, frozen=True):
    """``[limits]``."""

    memory: _Size = "8GiB"
    shm: _Size = "1GiB"
    tmp: _Size = "1GiB"
    pids: Annotated[int, Meta(ge=1, le=1_000_000)] = 1024
    cpus: Annotated[float, Meta(gt=0, le=4096)] | None = None
    output: _Size = "16MiB"


class MetricTable(_Spec, frozen=True):
    """``[metrics.NAME]``."""

    unit: _Line
    better: Better
    tolerance: Annotated[float, Meta(gt=0, le=10)] = 0.05
    repetitions: Annotated[int, Meta(ge=1, le=100_000)] = 30
    description: _Text = ""
    peak: PeakKind | None = None


class WorkloadFile(_Spec, frozen=True):
    """The whole of a ``workload.toml``."""

    name: _Slug
    description: _Line
    command: Annotated[tuple[_Line, ...], Meta(min_length=1, max_length=256)]
    image: ImageTable
    catches: Annotated[tuple[_Line, ...], Meta(max_length=64)] = ()
    gpus: Annotated[int, Meta(ge=0, le=64)] = 0
    nodes: Annotated[int, Meta(ge=1, le=1024)] = 1
    timeout: _Duration = "10m"
    seeds: Annotated[tuple[_Seed, ...], Meta(min_length=1, max_length=32)] = (0,)
    adapter: _Slug = "jsonl"
    user: Literal["nobody", "image"] = "nobody"
    replaces: bool = False
    environment: dict[_Variable, _Text] = {}
    limits: LimitsTable = LimitsTable()
    metrics: Annotated[dict[_Name, MetricTable], Meta(max_length=256)] = {}
    checks: Annotated[dict[_Name, _Line], Meta(max_length=256)] = {}


class SuiteTable(_Spec, frozen=True):
    """``[NAME]`` of a ``suites.toml``."""

    description: _Line
    workloads: Annotated[tuple[_Slug, ...], Meta(min_length=1, max_length=256)]
    replaces: bool = False


SuitesFile = dict[_Slug, SuiteTable]
