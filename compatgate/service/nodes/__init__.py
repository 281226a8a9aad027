"""Take node reports, and compare nodes with what their targets declare.

`reports` and `standing` read and compare without I/O; `service` stores reports and shows nodes.
"""
