"""Store the expected distributions of metrics, in versions that a person approves."""
