"""Store node reports, and compare nodes with the declarations of their targets.

`reports` and `standing` read and compare without I/O; `service` stores reports and shows nodes.
"""
