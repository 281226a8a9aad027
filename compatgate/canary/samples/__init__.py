"""Samples: what workloads have measured, as files of data beside their programs.

A sample is one execution of a workload: a first line that says where it comes from, then the lines
of the protocol that it reported. Samples are taken from stored runs, travel with the workload, and
start baselines where nothing has been measured yet.
"""
