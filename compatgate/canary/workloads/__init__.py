"""Readers of workloads and suites: the shipped ones and operators' own."""

from compatgate.canary.workloads.library import Library, read_workload

__all__ = ["Library", "read_workload"]
