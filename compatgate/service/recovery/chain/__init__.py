"""Walk the audit chain: verify, seal and prune it."""
