"""Show and draft targets: pools to run on, with their policies."""
