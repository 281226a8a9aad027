"""Serve the gate: one folder per capability.

Each holds its tables (`models` or the head of `repository`), queries (`repository`), what it
does (`service`), the bodies of REST (`schemas`, which the client imports), routes (`api`),
pages (`pages`, with templates) and commands (`cli`).
"""
