"""Canary runs: workloads, executors, reports and their judgement."""
