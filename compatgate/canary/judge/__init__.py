"""The judge: what a canary measured against what was accepted.

Pure and deterministic: no clock, no random numbers, nothing read; the same input gives the same
answer always. `judged` judges what a workload reported, `metric` one metric of it; `baseline`
learns what is normal; docs/judge.md says what is asked and how sure the answers are.
"""
