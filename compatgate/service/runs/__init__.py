"""Queue canary runs for workers, keep the evidence, and show what came of them."""
