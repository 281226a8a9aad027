"""A running cluster: its nodes and pods are read, labels, taints and policy reports written.

Everything goes through `compatgate.gate.cluster.connect`; what is to be written is made without I/O
in `compatgate.gate.cluster.suggest` and `compatgate.gate.cluster.policy_report`.
"""
