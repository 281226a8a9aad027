"""Samples: measured values of workloads, as data files next to their programs.

A sample is one execution of a workload: a first line with its provenance, then the lines of the
protocol that it reported. Samples are taken from stored runs, travel with the workload, and start
baselines before anything has been measured locally.
"""
