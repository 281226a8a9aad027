"""Which image a job runs in; a tag is pinned by asking a real registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from compatgate.canary.executors import Job
from compatgate.canary.executors.kubernetes import KubernetesExecutor
from compatgate.canary.workload import ImageSpec
from compatgate.errors import BadInput, InfrastructureError, NotFound

from .conftest import DIGEST

Make = Callable[..., Job]
OTHER = "registry.example/gemm@sha256:" + "b" * 64


def _image(executor: KubernetesExecutor, job: Job) -> str:
    said: list[str] = []
    prepared = executor.prepare(job, lambda doing, share: said.append(doing))
    assert said[0].startswith("looking up ")
    return prepared.image


def test_the_image_under_test_is_used_where_the_workload_runs_inside_it(
    executor: KubernetesExecutor, job: Make
) -> None:
    assert _image(executor, job()) == DIGEST


def test_the_workloads_own_image_is_used_where_it_does_not(
    executor: KubernetesExecutor, job: Make
) -> None:
    assert _image(executor, job(image=ImageSpec(reference=OTHER))) == OTHER


def test_the_host_names_the_image_of_a_workload_that_builds_one(
    on: Callable[..., KubernetesExecutor], job: Make
) -> None:
    made = job(image=ImageSpec(context="."))
    assert _image(on(images={"made": OTHER}), made) == OTHER
    with pytest.raises(BadInput, match="does not build images") as caught:
        _image(on(), made)
    assert "[host.kubernetes.images] made =" in caught.value.hint


def test_a_workload_without_any_image_needs_one_under_test(
    executor: KubernetesExecutor, job: Make
) -> None:
    with pytest.raises(BadInput, match="none is given"):
        _image(executor, msgspec.structs.replace(job(), image=None))


def test_a_tag_is_pinned_to_what_it_means_now(
    executor: KubernetesExecutor, job: Make, registry: Any, layer: Callable[..., Any]
) -> None:
    pushed = registry.push(layer({"app": b"x"}))
    name = pushed.by_digest().partition("@")[0]
    tagged = msgspec.structs.replace(job(), image=pushed.reference)
    assert _image(executor, tagged) == f"{name}@{pushed.digest}"


def test_a_tag_that_is_not_there_is_named(
    executor: KubernetesExecutor, job: Make, registry: Any
) -> None:
    with pytest.raises(NotFound, match="has no image nowhere"):
        _image(executor, msgspec.structs.replace(job(), image=f"{registry.host}/team/app:nowhere"))


def test_a_registry_that_is_away_is_worth_another_attempt(
    executor: KubernetesExecutor, job: Make
) -> None:
    with pytest.raises(InfrastructureError):
        _image(executor, msgspec.structs.replace(job(), image="127.0.0.1:9/team/app:1"))
