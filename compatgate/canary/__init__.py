"""Canary runs: workloads, where they run, what they reported, and how that is judged."""
