"""Run canaries for stacks, and keep what they showed."""
