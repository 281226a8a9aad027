"""Log every change in a hash chain, and verify it."""
