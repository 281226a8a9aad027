"""The paired judge: compare a candidate with the reference that ran in turns with it. Pure.

docs/explanation/judge.md explains the rule and its error rates.
"""
