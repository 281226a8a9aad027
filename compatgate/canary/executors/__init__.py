"""Executors run containers: one interface, and one module per kind of executor."""
