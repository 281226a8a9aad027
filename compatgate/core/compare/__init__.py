"""Compare two worlds: what a change of matrix, facts, pools or stacks does to all in use.

`comparison.compare` decides the same subjects before and after a change. What-if questions, plans,
backtests, dependents, the packages report and differences of facts are its questions.
"""
