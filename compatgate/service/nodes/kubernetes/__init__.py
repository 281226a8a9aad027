"""Read nodes and pods of a running cluster; label and taint nodes.

Everything goes through `compatgate.kit.kubernetes`; `labels` makes the changes without I/O.
"""
