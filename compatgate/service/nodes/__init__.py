"""Keep what machines report, and compare it with the declarations of their targets.

`reports`, `merging` and `comparison` read and compare without I/O; `service` stores reports and
shows nodes; `cluster_connection` and `cluster_audit` read a running cluster.
"""
