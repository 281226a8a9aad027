"""Keep the hash-chained log of changes, and sign verdicts."""
