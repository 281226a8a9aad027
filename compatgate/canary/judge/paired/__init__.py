"""The paired judge: compare a candidate with the reference that ran in turns with it.

Pure and deterministic, as the judge of baselines. `suite` judges all metrics of a suite by `rule`,
`courses` follows one metric, `looks` computes what a number of pairs shows, `blocks` turns samples
into log-ratios of pairs, `history` learns how noisy a metric is, and `lines` reads a file.
docs/explanation/judge.md explains the rule and its error rates.
"""
