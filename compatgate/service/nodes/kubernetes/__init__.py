"""Read nodes and pods of a running cluster, through `compatgate.kit.kubernetes`."""
