"""The paired judge: compare a candidate with the reference that ran in turns with it.

Pure and deterministic, as the judge of baselines. `blocks` turns samples into log-ratios of pairs,
and `suite` judges all metrics by the rule that both judges share. docs/explanation/judge.md
explains the rule and its error rates.
"""
