"""The judge: compare a canary's measurements with accepted ones.

Pure and deterministic: no clock, no random numbers, no I/O. `workload` judges a whole report,
`metric` judges one metric, and `baseline` learns the normal values. docs/explanation/judge.md
explains the questions and the confidence of the answers.
"""
