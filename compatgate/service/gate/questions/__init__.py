"""Answer whether a stack may run, on facts, matrix and evidence.

`service` decides each question on the current snapshot and logs the decision before the answer
leaves.
"""
