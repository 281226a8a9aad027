"""Read nodes and pods of a running cluster; write labels, taints and policy reports.

Everything goes through `compatgate.kit.kubernetes`; what is to be written is made
without I/O in `labels` and `policy_reports`.
"""
