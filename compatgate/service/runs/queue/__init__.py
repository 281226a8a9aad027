"""Queue canary runs for workers, store the evidence, and show the results."""
