"""What runs are made of: staging hosts, suites, workloads."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from compatgate.canary.samples.folder import kept
from compatgate.canary.workload import Workload
from compatgate.web.call import Call, Reply
from compatgate.web.paging import Filter, Paged, page, slice_page
from compatgate.web.route import Returns, route
from compatgate.wire.runs import HostBody, SuiteBody, WorkloadBody


class HostFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which hosts to list."""

    gpu: Annotated[Filter, Meta(description="SKU")] | None = None


@route(
    "GET",
    "/hosts",
    scope="read",
    tag="runs",
    query=HostFilters,
    returns=Returns(HostBody, "A page of hosts", paged=True, etag=True),
)
def list_hosts(call: Call[HostFilters]) -> Reply:
    """List the staging hosts that workers serve, by name."""
    return page(call.gate.runs.hosts(**call.query.filters()), lambda row: row.to_json())


@route(
    "GET",
    "/suites",
    scope="read",
    tag="runs",
    query=Paged,
    returns=Returns(SuiteBody, "A page of suites", paged=True, etag=True),
)
def list_suites(call: Call[Paged]) -> Reply:
    """List the suites that can be run, by name."""
    found = call.gate.runs.catalogue()
    suites = [found.suites[name] for name in sorted(found.suites)]

    def show(suite: Any) -> SuiteBody:
        names, gpus = list(suite.workloads), found.gpus_of(suite.name)
        return SuiteBody(suite.name, suite.description, names, gpus, found.nodes_of(suite.name))

    return page(slice_page(suites, call.query), show)


@route(
    "GET",
    "/workloads",
    scope="read",
    tag="runs",
    query=Paged,
    returns=Returns(WorkloadBody, "A page of workloads", paged=True, etag=True),
)
def list_workloads(call: Call[Paged]) -> Reply:
    """List the workloads, by name."""
    found = call.gate.runs.catalogue().workloads
    workloads = [found[name] for name in sorted(found)]
    return page(slice_page(workloads, call.query), _workload)


def _workload(workload: Workload) -> dict[str, Any]:
    own = (name for name in WorkloadBody.__struct_fields__ if name != "samples")
    body = {name: msgspec.to_builtins(getattr(workload, name)) for name in own}
    return {**body, "samples": [msgspec.to_builtins(sample) for sample in kept(workload)]}
