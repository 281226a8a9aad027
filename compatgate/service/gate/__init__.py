"""Answer whether a stack may run, on facts, matrix and evidence.

A question goes through `service`, `deciding` and `snapshots`; the answer leaves once
`decision_log` has it.
"""
