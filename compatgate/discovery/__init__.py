"""Discover the GPUs and driver of a host, and the libraries and frameworks of a stack."""
