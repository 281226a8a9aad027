"""Finds out what is there: GPUs and driver of a host, libraries and frameworks of a stack."""
